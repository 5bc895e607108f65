/** One run's settings: the output type of the schema, fully defaulted. */
export type { RunSettings as Settings, TrainedSettings } from '../schema/run.js';
export type { ImageEditSettings } from '../recipes/image_edit_tokens/settings.js';
export type { ImageTokenizerSettings } from '../recipes/image_tokenizer/settings.js';
export type {
  AdvantageSettings,
  AlgorithmSettings,
  GrpoSettings,
  SftSettings,
  TrainTokens,
} from '../schema/algorithm.js';
export type { DataSettings, DataSource, ImageDataSettings, TinyWorldSettings } from '../schema/data.js';
export type {
  DecoderInit,
  EngineSettings,
  HubReference,
  ImageTokenizerInit,
  ModelReference,
  RunReference,
} from '../schema/model.js';
export type { LaunchSettings, SlurmSettings } from '../schema/launch.js';
export type { TrackSettings } from '../schema/track.js';
export type { RewardSettings } from '../rewards/schema/reward.js';
export type { CheckpointSettings, OptimizerSettings, RolloutSettings, ValidationSettings } from '../schema/training.js';
