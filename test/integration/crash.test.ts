import { afterAll, beforeAll, expect, it } from 'vitest'
import { type KillableService, startKillableService } from '../support/crash/parts.ts'
import { runCrashes } from '../support/crash/run.ts'

/** The short form. `npm run crash -- --kills 50` is the long one. */
const KILLS = 8

let service: KillableService

beforeAll(async () => {
  service = await startKillableService()
})

afterAll(() => service.stop())

it('loses, doubles and leaves unanchored nothing that a caller was given, when each part is killed under load', async () => {
  const report = await runCrashes(service, { kills: KILLS, random: Math.random })
  expect(report.faults).toEqual([])
  expect(report.proven.length).toBeGreaterThan(20)
  const encrypted = report.proven.filter(({ isEncrypted }) => isEncrypted)
  expect(encrypted.length).toBeGreaterThan(report.proven.length / 5)
  expect(Object.fromEntries(report.kills)).toEqual({
    gateway: 2,
    enclave: 2,
    chain: 2,
    database: 2,
  })
})
