// FLUX.1-Kontext as the policy of image_editor.jsonnet, from the folder of its pipeline. Its own T5 and CLIP read the instructions, and guidance is an
// input of the model. An image keeps its aspect ratio: sides are multiples of 16.
local folder = std.extVar('APP__DATA_DIR') + '/flux-kontext';

{
  policy+: {
    model: folder + '/transformer',
    model_type: 'flux',
    lora+: {
      targets: [
        'attn.to_q',
        'attn.to_k',
        'attn.to_v',
        'attn.to_out.0',
        'attn.add_q_proj',
        'attn.add_k_proj',
        'attn.add_v_proj',
        'attn.to_add_out',
        'ff.net.0.proj',
        'ff.net.2',
        'ff_context.net.0.proj',
        'ff_context.net.2',
      ],
    },
    parts: { vae: folder + '/vae', text_encoder: folder },
  },
  rollout+: { guidance_scale: 2.5 },
}
