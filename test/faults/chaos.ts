import { parseArgs } from 'node:util'
import { startDeployment } from '../support/deployment/deployment.ts'
import { CHAOS_DEPLOYMENT, describeChaos, planTroubles, runChaos } from './run-chaos.ts'

/**
 * The chaos test in its long form: `npm run chaos -- --minutes 10 [--seed TEXT]`. Three gateways
 * behind a reverse proxy, two enclaves, Postgres, NATS and a chain are killed, hung, disconnected
 * and set wrong under load. Exits with 1 when anything came of it that must not.
 */
const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string', default: new Date().toISOString() },
  },
})
const minutes = Number(values.minutes)
if (!(minutes > 0)) {
  console.error(`--minutes: expected a number above 0, got ${values.minutes}`)
  process.exit(2)
}
const deployment = await startDeployment(CHAOS_DEPLOYMENT)
try {
  console.log(`seed      ${values.seed}${deployment.nats === null ? ' (no nats-server here)' : ''}`)
  const troubles = planTroubles(values.seed, minutes * 60_000)
  const report = await runChaos(deployment, troubles, values.seed)
  console.log(describeChaos(report))
  if (report.faults.length > 0) process.exitCode = 1
} finally {
  await deployment.stop()
}
