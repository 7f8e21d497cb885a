import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { canBefall, FAULTS } from './faults.ts'
import { type Measurement, measureFault } from './measure.ts'
import { openScene } from './scene.ts'
import { writeTable } from './write-table.ts'

/**
 * Measures every fault of the table and writes `deploy/FAULTS.md`: `npm run faults`. With
 * `--only PATTERN` those whose name matches, beside the rows that there are.
 */
const { values } = parseArgs({ options: { only: { type: 'string' } } })
const chosen = FAULTS.filter(({ part, name }) =>
  new RegExp(values.only ?? '').test(`${part} ${name}`),
)
const measured: Measurement[] = []
const WARNINGS_SHOWN = 60
let scene = await openScene()
try {
  for (const fault of chosen) {
    if (!canBefall(fault, scene)) continue
    console.error(`${fault.part}: ${fault.name}`)
    const result = await measureFault(fault, scene)
    measured.push(result)
    console.error(JSON.stringify({ ...result, fault: undefined, during: undefined }))
    if (result.lost.length > 0 || !Number.isFinite(result.recoveredAfterMs)) {
      console.error(warningsOf(scene.deployment.gateways[0]?.program.output ?? ''))
      // The next row shall not measure what this one left.
      await scene.close()
      scene = await openScene()
    }
  }
} finally {
  await scene.close()
}
const file = join(import.meta.dirname, '../../deploy/FAULTS.md')
const before = values.only === undefined ? '' : readFileSync(file, 'utf8')
writeFileSync(file, writeTable(measured, { faults: FAULTS, before }))
process.exitCode = measured.some(({ lost }) => lost.length > 0) ? 1 : 0

/** The last lines of a log that are no plain notes. */
function warningsOf(log: string): string {
  return log
    .split('\n')
    .filter((line) => !line.includes('"level":"info"'))
    .slice(-WARNINGS_SHOWN)
    .join('\n')
}
