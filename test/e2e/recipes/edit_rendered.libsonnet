// Over edit_served.libsonnet: pictures of a server that is told by hidden states.
{
  environment: { type: 'render_server', base_url: std.extVar('APP__IMAGES'), served_model: 'stub-editor', max_pixels: 1024 },
}
