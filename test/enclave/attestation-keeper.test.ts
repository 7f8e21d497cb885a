import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import {
  type AttestationKeeper,
  CLOCK_SKEW_MAX_MS,
  FRESH_CALLS_MAX,
  keepAttestation,
  LEAF_MARGIN_MS,
  RETRY_MS,
} from '#enclave/attestation-keeper.ts'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import type { AttestationInput } from '#enclave/protocol/nsm-wire.ts'
import { openSoftwareNsm } from '../support/software-nsm.ts'

const HOUR_MS = 3_600_000
const publicKey = new Uint8Array(65).fill(4)
const userData = new Uint8Array(32).fill(7)

let nsm: Nsm
let keeper: AttestationKeeper | undefined
const failure: { error: Error | null } = { error: null }
const inputs: AttestationInput[] = []
const events: string[] = []
/** The enclave's clocks, against the module's. */
const clock = { aheadMs: 0, monotonicAheadMs: 0 }
/** Runs while the module makes a document. */
const module = { meanwhile: () => {} }

beforeEach(async () => {
  vi.useFakeTimers({
    toFake: ['setTimeout', 'clearTimeout', 'Date'],
    now: new Date('2026-01-01T00:00:00Z'),
  })
  inputs.length = 0
  events.length = 0
  failure.error = null
  module.meanwhile = () => {}
  clock.aheadMs = 0
  clock.monotonicAheadMs = 0
  nsm = await openSoftwareNsm({ rootFile: null, now: Date.now })
})

afterEach(() => {
  keeper?.stop()
  vi.useRealTimers()
})

async function keep(renewMs = HOUR_MS): Promise<AttestationKeeper> {
  const attest = async (input: AttestationInput) => {
    inputs.push(input)
    if (failure.error) throw failure.error
    module.meanwhile()
    return nsm.attest(input)
  }
  const log = (_: string, event: string) => events.push(event)
  keeper = await keepAttestation({
    nsm: { attest },
    publicKey,
    userData,
    renewMs,
    now: () => Date.now() + clock.aheadMs,
    monotonic: () => Date.now() + clock.monotonicAheadMs,
    log,
  })
  return keeper
}

/** Lets the timers run, and what they begin end. */
async function pass(durationMs: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(durationMs)
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
}

describe('keepAttestation', () => {
  it('keepAttestation makes a document over key and configuration, with its digest', async () => {
    const document = (await keep()).current()
    expect(inputs).toEqual([{ publicKey, userData, nonce: null }])
    const bytes = Buffer.from(document?.base64 ?? '', 'base64')
    expect(document?.digest).toBe(createHash('sha256').update(bytes).digest('hex'))
    expect(document?.leafNotAfterMs).toBeGreaterThan(Date.now() + 2 * HOUR_MS)
  })

  it('keepAttestation renews the document each time it is as old as configured', async () => {
    const kept = await keep()
    const first = kept.current()
    await pass(HOUR_MS - 1000)
    expect(kept.current()).toBe(first)
    await pass(1000)
    const second = kept.current()
    expect(second?.digest).not.toBe(first?.digest)
    await pass(HOUR_MS)
    expect(kept.current()?.digest).not.toBe(second?.digest)
    expect(inputs).toHaveLength(3)
  })

  it('keepAttestation renews the document well before its leaf ends, however long it may be kept', async () => {
    const kept = await keep(2.5 * HOUR_MS)
    const first = kept.current()
    await pass((first?.leafNotAfterMs ?? 0) - 3 * LEAF_MARGIN_MS - Date.now())
    expect(kept.current()?.digest).not.toBe(first?.digest)
  })

  it('keepAttestation tries again while the module fails, and meanwhile keeps the old document', async () => {
    const kept = await keep()
    const first = kept.current()
    failure.error = new Error('busy')
    await pass(HOUR_MS + 3 * RETRY_MS)
    expect(inputs.length).toBeGreaterThanOrEqual(4)
    expect(kept.current()).toBe(first)
    expect(events).toContain('attestation not renewed')
    failure.error = null
    await pass(RETRY_MS)
    expect(kept.current()?.digest).not.toBe(first?.digest)
  })

  it('keepAttestation has no document when the leaf is about to end and the module still fails', async () => {
    const kept = await keep()
    const end = kept.current()?.leafNotAfterMs ?? 0
    failure.error = new Error('gone')
    await pass(end - LEAF_MARGIN_MS - 1 - Date.now())
    expect(kept.current()).not.toBe(null)
    await pass(1)
    expect(kept.current()).toBe(null)
  })

  it('keepAttestation renews no document after it was stopped', async () => {
    const kept = await keep()
    kept.stop()
    await pass(2 * HOUR_MS)
    expect(inputs).toHaveLength(1)
  })
})

describe('a clock that is not in step with the module’s', () => {
  it.each([CLOCK_SKEW_MAX_MS + 1, -CLOCK_SKEW_MAX_MS - 1, 86_400_000])(
    'a clock %i ms off from the start gives no document, says why, and is checked until it is right',
    async (aheadMs) => {
      clock.aheadMs = aheadMs
      clock.monotonicAheadMs = aheadMs
      const kept = await keep()
      expect(kept.current()).toBe(null)
      expect(kept.unavailable().fault).toMatchObject({
        code: 'not_ready',
        message: "The enclave's clock is not in step with its security module's.",
      })
      expect(events).toContain('clock is off')
      await pass(RETRY_MS)
      expect(kept.current()).toBe(null)
      clock.aheadMs = 0
      await pass(RETRY_MS)
      expect(kept.current()).not.toBe(null)
    },
  )

  it('a clock that only seems off after a suspend gives a document once the module agrees with it', async () => {
    const kept = await keep()
    await pass(10 * RETRY_MS)
    // The monotonic clock stood still during the suspend. The clock and the module's agree.
    clock.monotonicAheadMs = -1_800_000
    expect(kept.current()).toBe(null)
    await pass(RETRY_MS)
    expect(kept.current()).not.toBe(null)
    expect(inputs).toHaveLength(2)
  })

  it.each(['attestNonce', 'attestStatement'] as const)(
    'a clock that fell behind while the host paused the enclave leaves no document after %s',
    async (name) => {
      const kept = await keep()
      clock.aheadMs = -120_000
      clock.monotonicAheadMs = -120_000
      const nonce = new Uint8Array(32)
      if (name === 'attestNonce') await kept.attestNonce(nonce)
      else await kept.attestStatement({ userData, nonce })
      expect(kept.current()).toBe(null)
      await pass(RETRY_MS)
      expect(events).toContain('clock is off')
      expect(kept.current()).toBe(null)
      clock.aheadMs = 0
      await pass(RETRY_MS)
      expect(kept.current()).not.toBe(null)
    },
  )

  it.each([3_600_000, -3_600_000])(
    'a clock that is set %i ms off during a call to the module leaves no document',
    async (aheadMs) => {
      const kept = await keep()
      module.meanwhile = () => {
        clock.aheadMs = aheadMs
      }
      await kept.attestNonce(new Uint8Array(32))
      expect(kept.current()).toBe(null)
      await pass(RETRY_MS)
      expect(kept.current()).toBe(null)
    },
  )
})

describe('attestNonce', () => {
  it('attestNonce refuses more calls than may wait, and takes calls again when those are answered', async () => {
    const kept = await keep()
    const waiting = Array.from({ length: FRESH_CALLS_MAX }, () =>
      kept.attestNonce(new Uint8Array(16)),
    )
    await expect(kept.attestNonce(new Uint8Array(16))).rejects.toMatchObject({
      fault: { status: 503, code: 'too_busy' },
    })
    await Promise.all(waiting)
    await expect(kept.attestNonce(new Uint8Array(16))).resolves.toMatch(/^[A-Za-z0-9+/]+=*$/)
  })

  it('attestStatement gives a document while nonces, which anyone may ask for, are at their limit', async () => {
    const kept = await keep()
    const statement = { userData: new Uint8Array(32), nonce: new Uint8Array(32) }
    const flood = Array.from({ length: FRESH_CALLS_MAX }, () =>
      kept.attestNonce(new Uint8Array(16)),
    )
    await expect(kept.attestNonce(new Uint8Array(16))).rejects.toMatchObject({
      fault: { code: 'too_busy' },
    })
    await expect(kept.attestStatement(statement)).resolves.toMatch(/^[A-Za-z0-9+/]+=*$/)
    await Promise.all(flood)
  })

  it('attestNonce answers not_ready when the module fails, and does not say why', async () => {
    const kept = await keep()
    failure.error = new Error('secret detail')
    const refused = await kept.attestNonce(new Uint8Array(16)).catch((error: unknown) => error)
    expect(refused).toMatchObject({ fault: { status: 503, code: 'not_ready' } })
    expect(JSON.stringify(refused)).not.toContain('secret detail')
  })
})
