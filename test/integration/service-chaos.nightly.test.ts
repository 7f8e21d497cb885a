import { afterAll, beforeAll, expect, it } from 'vitest'
import { CHAOS_DEPLOYMENT, describeChaos, planTroubles, runChaos } from '../faults/run-chaos.ts'
import { type Deployment, startDeployment } from '../support/deployment/deployment.ts'
import { NATS } from '../support/nats-server.ts'

/** The short form. `npm run chaos -- --minutes 10` is the long one. */
const DURATION_MS = 60_000
/** Fixes the faults; the timing of calls depends on the machine. */
const SEED = process.env.CHAOS_SEED ?? 'chaos of 2026-11-22'

let deployment: Deployment

beforeAll(async () => {
  deployment = await startDeployment(CHAOS_DEPLOYMENT)
})

afterAll(() => deployment?.stop())

it(NATS.title('three gateways’ callers keep what they got while every part of the service fails'), {
  timeout: 10 * 60_000,
}, async () => {
  const report = await runChaos(deployment, planTroubles(SEED, DURATION_MS), SEED)
  const summary = `seed ${SEED}\n${describeChaos(report)}`
  expect(report.faults, summary).toEqual([])
  expect(report.proven, summary).toBeGreaterThan(50)
  expect(report.encrypted, summary).toBeGreaterThan(10)
  expect(report.keyed, summary).toBeGreaterThan(10)
  expect(report.outcomes.get('plain')?.get('ok') ?? 0, summary).toBeGreaterThan(10)
})
