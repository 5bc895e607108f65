/** Measures one job of `scripts/gpu_check`, and prints a line of JSON for each of its parts. */
import { measure, type Job } from './gpu_check_parts.js';

for await (const report of measure(JSON.parse(process.argv[2]) as Job)) console.log(JSON.stringify(report));
