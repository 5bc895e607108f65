/** One run's settings: the output type of the schema, fully defaulted. Narrow by `task`, then by `algorithm.type`. */
import type { ImageEditSettings, ImageTokenizerSettings } from './schema/tasks.js';

export type Settings = ImageEditSettings | ImageTokenizerSettings;

export type {
  EnvironmentSettings,
  ImageEditSettings,
  ImageTokenizerSettings,
  PolicySettings,
  TaskName,
} from './schema/tasks.js';
export type {
  AdvantageSettings,
  AlgorithmSettings,
  GrpoSettings,
  SftSettings,
  TrainTokens,
} from './schema/algorithm.js';
export type { DataSettings, DataSource, ImageDataSettings, TinyWorldSettings } from './schema/data.js';
export type {
  DecoderInit,
  EngineSettings,
  HubReference,
  ImageTokenizerInit,
  ModelReference,
  RunReference,
} from './schema/model.js';
export type { LaunchSettings, TrackSettings } from './schema/operate.js';
export type { JudgeScore, RewardMode, RewardSettings } from './schema/reward.js';
export type { CheckpointSettings, OptimizerSettings, RolloutSettings, ValidationSettings } from './schema/training.js';
