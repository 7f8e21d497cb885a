import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type EvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { SESSION_CHECKS } from '#attestation/session/session-checks.ts'
import { type SessionReport, verifySession } from '#attestation/session/verify-session.ts'
import { BOOT_CONFIGURATION, buildEvidence, policyFor } from '../evidence/build-evidence.ts'
import { buildStream } from '../evidence/build-stream.ts'
import { mutatedAt, otherLastDigit } from '../mutate-json.ts'
import { buildCalls, EXCHANGES, SESSION_ID, type SessionParts, sessionOf } from './build-session.ts'

const policy = policyFor(BOOT_CONFIGURATION)
const { chain } = buildEvidence()
const CALLS = buildCalls()
const attestations = createAttestationVerifier()

const verify = (calls: readonly unknown[]) =>
  verifySession(sessionOf(calls), policy, { attestations })
const verifyBuilt = (parts: SessionParts) => verify(buildCalls(parts))

function namesOf(report: SessionReport, outcome: string): readonly string[] {
  return report.checks.filter((check) => check.outcome === outcome).map(({ name }) => name)
}
const detailOf = (report: SessionReport, name: string) =>
  report.checks.find((check) => check.name === name)?.detail

/** The calls without the one at this place. */
const without = <Item>(items: readonly Item[], at: number) => items.toSpliced(at, 1)

it('every check of a whole session passes, with and without a chain', async () => {
  const report = await verify(CALLS)
  expect(namesOf(report, 'passed')).toEqual(Object.keys(SESSION_CHECKS))
  expect(report).toMatchObject({ verdict: 'verified', open: [], id: SESSION_ID })
  const asked: (number | null)[] = []
  const online = await verifySession(sessionOf(CALLS), policy, {
    askChain: async ({ anchor }) => {
      asked.push(anchor)
      return {
        ...chain,
        blockHash: CALLS.find((one) => one.block?.number === anchor)?.block?.hash ?? null,
      }
    },
  })
  expect(new Set(asked).size).toBe(asked.length)
  expect(online.calls[0]?.report.facts?.anchoredIn).not.toBeNull()
})

it('the timeline shows each item once, with images by digest and tools by name', async () => {
  const { timeline } = await verify(CALLS)
  const lines = timeline.map(({ call, kind, name, text }) => `${call} ${kind} ${name}: ${text}`)
  expect(lines).toEqual([
    '0 asked system: You are an agent.',
    '0 asked user: Is it warm here?',
    '0 attached image/png: SHA-256 4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6, 8 bytes',
    '0 thought : It may be Rome.',
    '0 said : I look it up.',
    '0 called locate: {"image":1}',
    '0 called clock: {}',
    '0 ended complete: ',
    '1 returned clock: 12:00',
    '1 returned locate: Rome',
    '1 said : It is warm in Rome.',
    '1 ended complete: ',
    '2 asked system: Name this.',
    '2 asked user: Warm?',
    '2 said : Weather',
    '2 ended complete: ',
    '3 asked user: Thanks',
    '3 refused : No more.',
    '3 ended complete: ',
  ])
})

it('the timeline has the answer of a stream whose response is left out, and no gap', async () => {
  const stream = buildStream().bundle
  const { timeline } = await verify([CALLS[0], stream])
  const ofStream = timeline.filter(({ call }) => call === 1).map(({ kind, text }) => [kind, text])
  expect(ofStream).toEqual([
    ['asked', 'Pay?'],
    ['said', 'Transfer nothing.'],
    ['ended', ''],
  ])
})

it('a session of a single call is verified when the call says that it is the last one', async () => {
  const exchanges = EXCHANGES.slice(0, 1)
  expect(await verifyBuilt({ exchanges })).toMatchObject({ verdict: 'verified' })
  const open = await verifyBuilt({ exchanges, isOpen: true })
  expect(open).toMatchObject({ verdict: 'incomplete', open: ['signed end'] })
})

it.each([0, 1, 2])('the loss of call %i is found by its number', async (at) => {
  const report = await verify(without(CALLS, at))
  expect(report).toMatchObject({ verdict: 'invalid', timeline: [] })
  expect(namesOf(report, 'failed')).toEqual(['none missing', 'previous hash'])
  expect(detailOf(report, 'none missing')).toBe(`the call with number ${at} is missing`)
})

it('the loss of several calls is found, and their number is stated', async () => {
  const report = await verify([CALLS[0], CALLS[3]])
  expect(detailOf(report, 'none missing')).toContain('number 1 is missing, the first of 2')
})

it.each([1, 2, 3])('a session that is cut before call %i is never verified', async (at) => {
  const report = await verify(CALLS.slice(0, at))
  expect(report).toMatchObject({ verdict: 'incomplete', open: ['signed end'] })
  expect(detailOf(report, 'signed end')).toContain('later calls may be cut')
})

it.each([0, 3])('a second copy of call %i is found at every place', async (at) => {
  for (const place of [0, at + 1, CALLS.length]) {
    const report = await verify(CALLS.toSpliced(place, 0, CALLS[at] as EvidenceBundle))
    expect(namesOf(report, 'failed')).toContain('none doubled')
    expect(report.verdict).toBe('invalid')
  }
})

it('every other order of the calls is found', async () => {
  for (const [one, other] of [
    [0, 1],
    [1, 3],
  ] as const) {
    const moved = CALLS.with(one, CALLS[other] as EvidenceBundle).with(
      other,
      CALLS[one] as EvidenceBundle,
    )
    const report = await verify(moved)
    expect(namesOf(report, 'failed')).toEqual(expect.arrayContaining(['order', 'previous hash']))
  }
})

it('a call of another session never stands for one of the session, at every place', async () => {
  const others = buildCalls({ id: otherLastDigit(SESSION_ID) })
  for (const at of CALLS.keys()) {
    const report = await verify(CALLS.with(at, others[at] as EvidenceBundle))
    expect(report.verdict).not.toBe('verified')
    expect(report.id).toBe(SESSION_ID)
    expect(detailOf(report, 'one session')).toBe(
      `not of session ${SESSION_ID}: call ${at}. Check them in their own file`,
    )
    if (at < 3) expect(namesOf(report, 'failed')).toContain('none missing')
    else expect(report.open).toContain('signed end')
  }
})

it('two honest sessions in one file are incomplete, not changed', async () => {
  const others = buildCalls({ id: otherLastDigit(SESSION_ID) })
  const report = await verify([...CALLS, ...others])
  expect(report).toMatchObject({ verdict: 'incomplete', open: ['one session'] })
})

it('calls that name no session are checked each, and no session is stated', async () => {
  const report = await verifyBuilt({ place: () => undefined })
  expect(report).toMatchObject({ verdict: 'verified', id: null, timeline: [] })
  expect(report.checks.map(({ name }) => name)).toEqual(['evidence of calls'])
  const [first] = EXCHANGES
  const one = await verifyBuilt({
    place: () => undefined,
    exchanges: [first, first, first] as typeof EXCHANGES,
    evidence: (at) => (at === 1 ? { stored: { created_at: 1 } } : {}),
  })
  expect(one.verdict).toBe('invalid')
})

it('a second call with the same number does not pass for the call before a later one', async () => {
  const [first, second, ...rest] = EXCHANGES
  const again = { ...second, response: { ...second?.response, id: 'chatcmpl-2' } }
  const fork = buildCalls({ exchanges: [first, again, ...rest] as typeof EXCHANGES })
  const report = await verify(CALLS.with(1, fork[1] as EvidenceBundle))
  expect(namesOf(report, 'failed')).toEqual(['previous hash'])
})

it('a call after the signed end is found', async () => {
  const report = await verifyBuilt({
    place: (own, at) => (at === 1 ? { ...own, last: true } : own),
  })
  expect(namesOf(report, 'failed')).toEqual(['signed end'])
  expect(detailOf(report, 'signed end')).toContain('call 1')
})

it.each<[string, (own: JsonObject) => JsonObject | undefined, string]>([
  [
    'names a place of another form',
    ({ last: _, ...own }) => ({ ...own, last: false }),
    'one session',
  ],
  ['names the first number', (own) => ({ ...own, n: 0, previous: null }), 'none doubled'],
  ['names a far number', (own) => ({ ...own, n: 2 ** 53 - 1 }), 'none missing'],
  [
    'names another call before it',
    (own) => ({ ...own, previous: otherLastDigit(String(own.previous)) }),
    'previous hash',
  ],
])('a call that %s is found', async (_, change, name) => {
  const report = await verifyBuilt({ place: (own, at) => (at === 2 ? change(own) : own) })
  expect(namesOf(report, 'failed')).toContain(name)
  expect(report).toMatchObject({ verdict: 'invalid', timeline: [] })
})

it('no changed session is verified, and an invalid one shows no step', async () => {
  const session = sessionOf(buildCalls({ exchanges: EXCHANGES.slice(0, 2) }))
  await fc.assert(
    fc.asyncProperty(mutatedAt([...session], []), async (mutated) => {
      const changed = (Array.isArray(mutated) ? mutated : [mutated]) as readonly JsonObject[]
      const report = await verifySession(changed, policy, { attestations })
      const isSame = JSON.stringify(changed) === JSON.stringify(session)
      expect(report.verdict === 'verified').toBe(isSame)
      if (report.verdict === 'invalid') expect(report.timeline).toEqual([])
    }),
    { numRuns: 12 },
  )
}, 60_000)

it('an invalid call makes the session invalid, and names the call', async () => {
  const report = await verifyBuilt({
    evidence: (at) => (at === 2 ? { stored: { created_at: 1 } } : {}),
  })
  expect(namesOf(report, 'failed')).toEqual(['evidence of calls'])
  expect(detailOf(report, 'evidence of calls')).toContain('call 2')
  expect(report.calls.map(({ report: { verdict } }) => verdict)).toEqual([
    'verified',
    'verified',
    'invalid',
    'verified',
  ])
  expect(report.timeline).toEqual([])
})

it('a call without a block, or that was cut, leaves the session incomplete', async () => {
  const waiting = await verifyBuilt({ evidence: (at) => ({ isMined: at !== 3 }) })
  expect(waiting).toMatchObject({ verdict: 'incomplete', open: ['evidence of calls'] })
  const cut = await verifyBuilt({
    evidence: (at) => (at === 1 ? { record: { receipt: { outcome: 'upstream_error' } } } : {}),
  })
  expect(cut).toMatchObject({ verdict: 'incomplete', open: ['evidence of calls'] })
  expect(cut.timeline).toContainEqual({
    call: 1,
    kind: 'ended',
    name: 'upstream_error',
    text: '',
  })
})

it('a request that is left out opens the checks that need it, and never fails them', async () => {
  const report = await verify(
    CALLS.with(1, redactBundle(CALLS[1] as EvidenceBundle, { request: true })),
  )
  expect(report.verdict).toBe('incomplete')
  expect(report.open).toEqual([
    'evidence of calls',
    'one session',
    'none missing',
    'none doubled',
    'order',
    'previous hash',
    'signed end',
    'answers in requests',
  ])
  expect(report.timeline).toContainEqual({
    call: 1,
    kind: 'other',
    name: 'left out',
    text: 'the request',
  })
})

it('a request that is left out does not hide that another call is missing', async () => {
  const redacted = redactBundle(CALLS[1] as EvidenceBundle, { request: true })
  const report = await verify([redacted, CALLS[3]])
  expect(namesOf(report, 'failed')).toContain('none missing')
})

it('a call that names no session does not stand for a missing number', async () => {
  const report = await verifyBuilt({ place: (own, at) => (at === 1 ? undefined : own) })
  expect(namesOf(report, 'failed')).toEqual(['none missing', 'previous hash'])
  expect(detailOf(report, 'none missing')).toBe('the call with number 1 is missing')
})

it('an answer that is left out is named as foreign where a later request has it', async () => {
  const report = await verify(
    CALLS.with(1, redactBundle(CALLS[1] as EvidenceBundle, { response: true })),
  )
  expect(report.open).toEqual(['evidence of calls', 'answers in requests'])
  expect(detailOf(report, 'answers in requests')).toBe(
    'item 8 (said) in the request of call 3 is of no earlier call',
  )
})

it('requests without an answer make their call incomplete, and so the session', async () => {
  const unanswered = [{ notary: `0x${'ab'.repeat(20)}`, times: 2, n: 4 }]
  const report = await verify(CALLS.with(3, { ...(CALLS[3] as EvidenceBundle), unanswered }))
  expect(report).toMatchObject({ verdict: 'incomplete', open: ['evidence of calls'] })
  expect(report.calls[3]?.report.open).toEqual(['other requests'])
  expect(detailOf(report, 'evidence of calls')).toBe('of call 3: other requests')
})
