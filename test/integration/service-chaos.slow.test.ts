import { afterAll, beforeAll, expect, it } from 'vitest'
import { CHAOS_DEPLOYMENT, describeChaos, planTroubles, runChaos } from '../faults/run-chaos.ts'
import { type Deployment, startDeployment } from '../support/deployment/deployment.ts'
import { NATS } from '../support/nats-server.ts'

/** The short form. `npm run chaos -- --minutes 10` is the long one. */
const DURATION_MS = 60_000
/** Fixes what goes wrong; when calls meet it is up to the machine. */
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
  const told = `seed ${SEED}\n${describeChaos(report)}`
  expect(report.faults, told).toEqual([])
  expect(report.proven, told).toBeGreaterThan(50)
  expect(report.encrypted, told).toBeGreaterThan(10)
  expect(report.keyed, told).toBeGreaterThan(10)
  expect(report.outcomes.get('plain')?.get('ok') ?? 0, told).toBeGreaterThan(10)
})
