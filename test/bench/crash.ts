import { parseArgs } from 'node:util'
import { startKillableService } from '../support/crash/parts.ts'
import { runCrashes } from '../support/crash/run.ts'

/**
 * The crash test in its long form: `npm run crash -- --kills 50`. Kills gateway, enclave, chain and
 * database in turn under load, and exits with 1 when anything that a caller was given with proof is
 * lost, doubled, unproven or unanchored.
 */
const { values } = parseArgs({ options: { kills: { type: 'string', default: '50' } } })
const kills = Number(values.kills)
if (!Number.isSafeInteger(kills) || kills < 1) {
  console.error(`--kills: expected a whole number from 1, got ${values.kills}`)
  process.exit(2)
}

const startedAt = performance.now()
const service = await startKillableService()
try {
  const report = await runCrashes(service, { kills, random: Math.random })
  console.log(
    `kills            ${[...report.kills].map(([name, count]) => `${name} ${count}`).join(', ')}`,
  )
  console.log(
    `proven answers   ${report.proven.length}, each looked up by its hash, verified, and its anchor asked of the chain`,
  )
  console.log(
    `encrypted        ${report.proven.filter(({ isEncrypted }) => isEncrypted).length} of them, completed with what their callers kept`,
  )
  console.log(
    `failed calls     ${[...report.failures].map(([kind, count]) => `${kind} ${count}`).join(', ')}`,
  )
  console.log(`took             ${((performance.now() - startedAt) / 1000).toFixed(0)} s`)
  for (const fault of report.faults) console.log(`FAULT            ${fault}`)
  console.log(`faults           ${report.faults.length}`)
  if (report.faults.length > 0) process.exitCode = 1
} finally {
  await service.stop()
}
