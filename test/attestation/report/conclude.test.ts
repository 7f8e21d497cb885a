import { expect, it } from 'vitest'
import { redactBundle } from '#attestation/evidence/bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { AWS_ROOT_SHA256 } from '#attestation/nitro/policy.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { entryOf } from '#attestation/release/release-list.ts'
import { type Conclusion, conclude, saySentence } from '#attestation/report/conclude.ts'
import { type ExpectedEvidence, judgeEvidence } from '#attestation/report/judge-evidence.ts'
import { readEvidence } from '#attestation/report/read-evidence.ts'
import { isOtherRoot } from '#attestation/report/unknown-root.ts'
import { buildRelease } from '../../support/build-release.ts'
import { PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { RESPONSE } from '../build-record.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
  policyFor,
} from '../evidence/build-evidence.ts'
import { otherLastDigit } from '../mutate-json.ts'
import { buildCalls, EXCHANGES, sessionOf } from '../session/build-session.ts'

const { measurements = [], roots = [], configurations = [] } = policyFor(BOOT_CONFIGURATION)

it('the name of a model is in quotation marks, cannot end them, and is short', async () => {
  const forged =
    'a. Its machine passes your policy”. Block 1 records this\n\u001b[2J, and is on the chain.'
  for (const model of [forged, forged.repeat(5)]) {
    const { bundle } = buildEvidence({ record: { response: { ...RESPONSE, model } } })
    const { verdict, finding } = await conclusionOf(bundle)
    expect(verdict).toBe('verified')
    const [, said = '', rest] =
      finding.match(/“demo” answered with model “([^”]*)”\. (Block .*)$/) ?? []
    expect(said).toContain('passes your policy\\u{201d}. Block 1 records this\\u{a}')
    expect(finding).not.toMatch(/\p{Cc}/u)
    expect(said.length).toBeLessThan(100)
    expect(rest).toMatch(
      /^Block \d+ says .* UTC, but was not looked up: the chain has not confirmed this\.$/,
    )
  }
})

it('an answer that was cut is never called whole, also if the reader accepts the cut', async () => {
  const { bundle } = buildEvidence({ record: { receipt: { outcome: 'client_disconnected' } } })
  const { bundle: whole } = buildEvidence()
  for (const outcomes of [null, ['client_disconnected'] as const])
    for (const evidence of [bundle, bundle.record]) {
      const { finding, notShown } = await conclusionOf(evidence, { outcomes })
      expect(finding).toMatch(/signed this question and the received part of this answer[ ,]/)
      expect(finding).toContain('The answer was cut, and its end is not shown.')
      expect(notShown).toContain('that the answer is whole')
    }
  const records = await conclusionOf({ completions: [bundle.record, whole.record] })
  expect(records.finding).toContain('Of 2 answers, 1 was cut: what is missing is not shown.')
  expect(records.notShown).toContain('that the answer is whole')
  expect((await conclusionOf(whole)).finding).not.toContain('cut')
})

it('calls are called of one session only if they name that session themselves', async () => {
  const session = buildCalls()
  const others = [
    ...buildCalls({ id: '0a'.repeat(16), exchanges: EXCHANGES.slice(0, 1) }),
    ...buildCalls({ exchanges: EXCHANGES.slice(2, 3), place: () => undefined }),
  ].map((call) => redactBundle(call, { request: true, response: false }))
  const [one, claimed] = [
    await conclusionOf(sessionOf(session)),
    await conclusionOf(sessionOf(others)),
  ]
  expect(one.finding).toContain('These are 4 calls of one session, signed by one notary')
  expect(claimed.finding).toContain('These are 2 calls, signed by')
})

it('an enclave is not said to run expected code if the expected set has no PCR0', async () => {
  const zeros = new Uint8Array(48)
  const pcrs = new Map([...PCR_VALUES].map(([index, pcr]) => [index, index < 3 ? zeros : pcr]))
  const { bundle } = buildEvidence({ document: { pcrs } })
  const expecting = (...indexes: readonly number[]) => ({
    attestation: {
      measurements: [new Map(indexes.map((at) => [at, PCR_VALUES.get(at) ?? zeros]))],
      roots,
      allowDebug: true,
    },
  })
  for (const evidence of [bundle, bundle.record]) {
    const { finding, notShown } = await conclusionOf(evidence, expecting(4))
    expect(finding).toMatch(/^An enclave whose register 4 is as you expect signed /)
    expect(finding).toContain('The enclave ran in debug mode: its host could read its key')
    expect(notShown).toContain('that the enclave runs code that you expect')
  }
  const both = await conclusionOf(bundle, expecting(4, 3))
  expect(both.finding).toMatch(/^An enclave whose registers 3, 4 are as you expect signed /)
  const known = await conclusionOf(buildEvidence().bundle, expecting(4, 0))
  expect(known.finding).toMatch(/^An enclave that runs code that you expect signed /)
  expect([known.finding, ...known.notShown].join()).not.toMatch(/debug|that the enclave runs/)
})

it('an answer whose code is known does not hide another whose code is not', async () => {
  const zeros = new Uint8Array(48)
  const pcrs = new Map([...PCR_VALUES].map(([index, pcr]) => [index, index < 3 ? zeros : pcr]))
  const known = buildCalls({ exchanges: EXCHANGES.slice(0, 2) })
  const mixed = (at: number) =>
    buildCalls({
      exchanges: EXCHANGES.slice(0, 2),
      evidence: (call) => (call === at ? { document: { pcrs } } : {}),
    })
  const sets = [[0, 4], [4]].map(
    (indexes) => new Map(indexes.map((index) => [index, PCR_VALUES.get(index) ?? zeros])),
  )
  const expected = { attestation: { measurements: sets, roots, allowDebug: true } }
  const unknownCode = 'that the enclave runs code that you expect'
  const judgedAs = async (calls: typeof known) => [
    await conclusionOf(sessionOf(calls), expected),
    await conclusionOf({ completions: calls.map(({ record }) => record) }, expected),
  ]
  for (const { finding, notShown } of await judgedAs(known)) {
    expect(notShown).not.toContain(unknownCode)
    expect(finding).not.toContain('debug mode')
  }
  for (const at of [0, 1])
    for (const { finding, notShown } of await judgedAs(mixed(at))) {
      expect(notShown).toContain(unknownCode)
      expect(finding).toContain('The enclave ran in debug mode')
    }
})

it('a record is not accepted whose enclave was booted with another configuration than its release has', async () => {
  const { bundle } = buildEvidence()
  const digest = Buffer.from(digestOf(BOOT_CONFIGURATION)).toString('hex')
  for (const [configuration, verdict] of [
    [digest, 'incomplete'],
    [otherLastDigit(digest), 'not_accepted'],
  ] as const) {
    const releases = [entryOf(buildRelease({ configuration }))]
    const expected = { attestation: { measurements: [], releases, roots } }
    expect((await conclusionOf(bundle.record, expected)).verdict).toBe(verdict)
  }
})

it('a root is another one than AWS’s as soon as its last bit differs', () => {
  const other = AWS_ROOT_SHA256.with(-1, (AWS_ROOT_SHA256.at(-1) ?? 0) ^ 1)
  expect([isOtherRoot([AWS_ROOT_SHA256]), isOtherRoot([other])]).toEqual([false, true])
})

it('a result under a root that is not AWS’s says so, in the sentence of every program', async () => {
  const { bundle } = buildEvidence()
  for (const evidence of [bundle, bundle.record]) {
    const conclusion = await conclusionOf(evidence)
    expect(conclusion.caution).toContain("a root that is not AWS's")
    expect(saySentence(conclusion)).toContain(` ${conclusion.caution} Not shown: `)
  }
  const unknown = await conclusionOf(bundle, { attestation: { measurements } })
  expect([unknown.verdict, unknown.caution]).toEqual(['not_accepted', null])
})

async function conclusionOf(
  evidence: object,
  expected: Partial<ExpectedEvidence> = {},
): Promise<Conclusion> {
  return conclude(await judged(evidence as Json, expected))
}

function judged(evidence: Json, expected: Partial<ExpectedEvidence>) {
  const lines = Array.isArray(evidence) ? evidence : [evidence]
  const bytes = new TextEncoder().encode(lines.map((line) => JSON.stringify(line)).join('\n'))
  return judgeEvidence(readEvidence(bytes, null), {
    expected: {
      attestation: { measurements, roots },
      isAttestationDemanded: true,
      configurations,
      confirmationsMin: null,
      outcomes: null,
      providers: null,
      ...expected,
    },
    kept: { requestBody: null, answer: null, savedRequest: null },
    verifier: createAttestationVerifier(),
    askChain: null,
  })
}
