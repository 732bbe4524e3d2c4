"""Upload checkpoints and models to the Hugging Face Hub and to object storage."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.outcomes import *
    from training_monitor.uploads.checkpoint import *
    from training_monitor.uploads.hugging_face import *
    from training_monitor.uploads.presign import *
    from training_monitor.uploads.presigned import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.outcomes": "UploadReport UploadedFile",
        "uploads.checkpoint": "upload_checkpoint",
        "uploads.hugging_face": "IncompleteInfo format_incomplete_card upload_to_hugging_face",
        "uploads.presign": "Storage presign_upload",
        "uploads.presigned": "upload_to_presigned_url",
    },
)
