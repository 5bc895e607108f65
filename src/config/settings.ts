/** Types of settings, for those that do not import them from where they are defined. */
export type { ImageEditSettings } from '../recipes/image_edit_tokens/settings.js';
export type { ImageTokenizerSettings } from '../recipes/image_tokenizer/settings.js';
export type { RewardSettings } from '../rewards/schema/reward.js';
export type { AdvantageSettings, GrpoSettings, SftSettings } from '../schema/algorithm.js';
export type { DataSource } from '../schema/data.js';
export type { EngineSettings, ModelReference } from '../schema/model.js';
export type { TrainedSettings } from '../schema/run.js';
export type { CheckpointSettings, OptimizerSettings } from '../schema/training.js';
