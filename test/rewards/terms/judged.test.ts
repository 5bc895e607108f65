import { groundScore } from '../../../src/rewards/terms/ground_score.js';
import { qualityAndGround } from '../../../src/rewards/terms/quality_and_ground.js';
import { viescore } from '../../../src/rewards/terms/viescore.js';
import { termContract } from './term_contract.js';
import { tableJudge, testServices } from './term_services.js';

for (const kind of [groundScore, qualityAndGround, viescore]) {
  termContract(kind.name, () => kind.create({}, testServices(tableJudge())));
}
