// Qwen-Image-Edit-2509 or -2511 as the policy of image_editor.jsonnet, from the folder of its pipeline. Rows have up to three source images. For several,
// choose a reward that shows the judge all of them, such as align_quality. The first Qwen-Image-Edit takes one image of 1036 * 1036 pixels and no
// add_vision_id.
local folder = std.extVar('APP__DATA_DIR') + '/qwen-image-edit';

{
  policy+: {
    model: folder + '/transformer',
    model_type: 'qwen',
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
        'img_mlp.net.0.proj',
        'img_mlp.net.2',
        'txt_mlp.net.0.proj',
        'txt_mlp.net.2',
      ],
    },
    parts: { vae: folder + '/vae' },
  },
  reader: {
    model: folder + '/text_encoder',
    told: 'instruction',
    // The area of 384 * 384 pixels in whole tokens of 28 * 28.
    pixels: { image: { min_pixels: 392 * 392, max_pixels: 392 * 392 } },
    model_context_size: 2048,
    engine: { dtype: 'float16' },
  },
  prompt: {
    // The system message that the transformer was trained with, to the letter.
    system: "Describe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.",
    variables: { add_vision_id: true },
  },
  rollout+: { guidance_scale: 4, noise_level: 1.2 },
}
