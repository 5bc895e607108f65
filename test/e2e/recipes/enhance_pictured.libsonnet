// Over enhance_small.libsonnet: the pictures of a server. What else is trained for it keeps what it has.
{
  local enhances = super.task == 'prompt_enhance',
  environment: if enhances then {
    type: 'images_api',
    base_url: std.extVar('APP__IMAGES'),
    served_model: 'stub-image',
    size: '16x16',
  } else super.environment,
}
