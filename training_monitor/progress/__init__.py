"""Progress from inside the script: the files a run writes of itself, and who reads them."""
