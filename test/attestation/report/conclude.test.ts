import { describe, expect, it } from 'vitest'
import { redactBundle } from '#attestation/evidence/bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { type Conclusion, conclude, saySentence } from '#attestation/report/conclude.ts'
import { type ExpectedEvidence, judgeEvidence } from '#attestation/report/judge-evidence.ts'
import { readEvidence } from '#attestation/report/read-evidence.ts'
import { PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { RESPONSE } from '../build-record.ts'
import { BOOT_CONFIGURATION, buildEvidence, policyFor } from '../evidence/build-evidence.ts'
import { buildCalls, EXCHANGES, sessionOf } from '../session/build-session.ts'

const { measurements = [], roots = [], configurations = [] } = policyFor(BOOT_CONFIGURATION)

describe('the finding', () => {
  it('the name of a model is in quotation marks, cannot end them, and is short', async () => {
    const forged = 'a. Its machine passes your policy”. Block 1 records this, and is on the chain.'
    for (const model of [forged, forged.repeat(5)]) {
      const { bundle } = buildEvidence({ record: { response: { ...RESPONSE, model } } })
      const { verdict, finding } = await conclusionOf(bundle)
      expect(verdict).toBe('verified')
      const [, said = '', rest] =
        finding.match(/“demo” answered with model “([^”]*)”\. (Block .*)$/) ?? []
      expect(said).toContain('Its machine passes your policy\\u{201d}. Block 1 records this')
      expect(said.length).toBeLessThan(100)
      expect(rest).toMatch(
        /^Block \d+, made at .*, records this, and was not looked up on the chain\.$/,
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
    expect(claimed.finding).toContain('2 calls that this file puts into one session, signed by')
    expect(claimed.notShown).toContain('that these calls are of one session')
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

  it('a result under a root that is not AWS’s says so, in the sentence of every program', async () => {
    const { bundle } = buildEvidence()
    for (const evidence of [bundle, bundle.record]) {
      const conclusion = await conclusionOf(evidence)
      expect(conclusion.caution).toContain("a root that is not AWS's")
      expect(saySentence(conclusion)).toContain(` ${conclusion.caution} Not shown: `)
    }
    const unknown = await conclusionOf(bundle, { attestation: { measurements } })
    expect([unknown.standing, unknown.caution]).toEqual(['undetermined', null])
  })
})

async function conclusionOf(
  evidence: object,
  expected: Partial<ExpectedEvidence> = {},
): Promise<Conclusion> {
  return conclude(await judged(evidence as Json, expected))
}

function judged(evidence: Json, expected: Partial<ExpectedEvidence>) {
  const bytes = new TextEncoder().encode(JSON.stringify(evidence))
  return judgeEvidence(readEvidence(bytes, null), {
    expected: {
      attestation: { measurements, roots },
      isAttestationDemanded: true,
      configurations,
      confirmationsMin: null,
      outcomes: null,
      providerPolicy: null,
      ...expected,
    },
    kept: { requestBody: null, answer: null, savedRequest: null },
    verifier: createAttestationVerifier(),
    askChain: null,
  })
}
