// An overlay on supervised.libsonnet without a response. The editor's condition is image and instruction, as in its training.
{
  environment: if super.task == 'edit_response' && super.environment != null
  then super.environment { told: 'instruction', model: { run: 'untold_editor', config: 'untold_editor.jsonnet' } }
  else super.environment,
}
