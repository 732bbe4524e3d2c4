# What comes before the user's command that makes samples with a model: it runs in the folder of its job, and finds the
# absolute paths $MODEL and $SAMPLES.
# needs: _folder _model

_enter() {
  case $_model in /*) MODEL=$_model ;; *) MODEL=$PWD/${_model#./} ;; esac
  cd -- "$_folder" && mkdir -p samples || { echo "the folder for the samples cannot be made"; exit 73; }
  SAMPLES=$PWD/samples
  export MODEL SAMPLES
}
