"""What somebody who has read the skill alone would type, and conclude."""
