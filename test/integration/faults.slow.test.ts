import { afterAll, beforeAll, expect, it } from 'vitest'
import { canBefall, FAULTS, type Fault } from '../faults/faults.ts'
import { type LoadPlan, measureFault } from '../faults/measure.ts'
import { openScene } from '../faults/scene.ts'

/**
 * Rows of deploy/FAULTS.md, each held for seconds only. Of the provider's faults, only the ones
 * without a test in integration/hostile-provider.
 */
const TESTED =
  /^(Postgres|Chain|NATS|Gateway)|^Enclave (one of two hung|all)|^Provider (silent|answers 429)/
const LOAD: LoadPlan = { intervalMs: 400, timeoutMs: 60_000, recoveryMs: 60_000 }

let scene: Awaited<ReturnType<typeof openScene>>
beforeAll(async () => {
  scene = await openScene()
})
afterAll(() => scene?.close())

const titleOf = ({ part, name }: Fault) => `${part} ${name}`

it.each(
  FAULTS.filter((fault) => TESTED.test(titleOf(fault))).map(
    (fault) => [titleOf(fault), fault] as const,
  ),
)(
  'a fault loses nothing, leaves no caller waiting and is over when its cause is: %s',
  { timeout: 240_000 },
  async (_, fault) => {
    if (!canBefall(fault, scene)) return
    const measured = await measureFault(fault, scene, { holdMs: fault.shortHoldMs, load: LOAD })
    expect(measured.lost).toEqual([])
    const codes = new Set(measured.during.map(({ code }) => code))
    expect([...codes]).not.toContain('timeout')
    expect([...codes]).not.toContain('internal_server_error')
    expect(measured.recoveredAfterMs).toBeLessThan(LOAD.recoveryMs)
    const said = measured.readyz.map((one) => one.said).join('\n')
    if (fault.readyz !== undefined) expect(said).toMatch(fault.readyz)
    if (!/killed/.test(fault.name)) expect(measured.exits).toBe(0)
  },
)
