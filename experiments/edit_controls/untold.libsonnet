// Over supervised.libsonnet: without a response. What draws is told the picture and the instruction alone, as it learnt to.
{
  environment: if super.task == 'edit_response' && super.environment != null
  then super.environment { told: 'instruction', model: { run: 'untold_editor', config: 'untold_editor.jsonnet' } }
  else super.environment,
}
