import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { encodeHex, sha256 } from '#attestation/bytes.ts'
import { type EvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import { saveEvidence, writeEvidence } from '#attestation/evidence/create-evidence.ts'
import { writeEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import { type Json, type JsonObject, memberAt } from '#attestation/json/value.ts'
import { signRelease } from '#attestation/release/verify-release.ts'
import { type Job, NO_POLICY } from '#src/web/verify/job.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../../../attestation/evidence/build-evidence.ts'
import { PUBLIC_KEYS, SECRET_KEYS } from '../../../attestation/release/release-vectors.ts'
import { buildCalls, EXCHANGES } from '../../../attestation/session/build-session.ts'
import { buildOtherRelease } from '../../../support/build-release.ts'
import { folderOfFile, saverIn } from '../../../support/folders.ts'
import { PCR_VALUES, standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'

const room = (path: string) => new URL(`../../../../src/web/${path}`, import.meta.url).href
const { runJob } = await import(room('verify/run-job.ts'))

const { bundle, chain } = buildEvidence()
const { bundle: encrypted } = buildEvidence({ record: { receipt: { encrypted: true } } })
const record = encrypted.record as typeof encrypted.record & {
  readonly request: JsonObject
  readonly response: JsonObject
}
const withoutTexts = redactBundle(encrypted, { request: true, response: true })
const changed = (part: 'request' | 'response', value: JsonObject): EvidenceBundle =>
  ({ ...bundle, record: { ...bundle.record, [part]: value } }) as EvidenceBundle
const altered = (response: JsonObject): JsonObject =>
  JSON.parse(JSON.stringify(response).replace(/"content":"[^"]*"/, '"content":"Pay twice."'))
const answerOf = (of: EvidenceBundle) =>
  memberAt(of.record as unknown as Json, 'response') as JsonObject
const { id: _, ...proof } = { id: '', ...encrypted.record }
const saved = saveEvidence(
  {
    request: record.request,
    answer: {
      kind: 'whole',
      answer: {
        ...record.response,
        ...(JSON.parse(
          JSON.stringify(proof, ['hash', 'public_key', 'signature', 'tx_hash', 'attestation']),
        ) as JsonObject),
        receipt: record.receipt as unknown as JsonObject,
        log: record.log as unknown as JsonObject,
      },
    },
  },
  { configuration: BOOT_CONFIGURATION, unanswered: [] },
)

const TEN = buildCalls({
  exchanges: Array.from({ length: 10 }, (_, at) => ({
    request: { model: 'demo/echo', messages: [{ role: 'user', content: `Step ${at}` }] },
    response: { ...(EXCHANGES[1]?.response ?? {}), id: `chatcmpl-${at}` },
  })),
})
const oneOfTen = TEN.with(6, {
  ...(TEN[6] as EvidenceBundle),
  record: { ...TEN[6]?.record, response: altered(answerOf(TEN[6] as EvidenceBundle)) } as never,
})

const OWN = Object.fromEntries(
  [0, 1, 2].map((at) => [`PCR${at}`, encodeHex(PCR_VALUES.get(at) ?? new Uint8Array())]),
)
const OTHER = { PCR0: 'b0'.repeat(48) }
const ROOT = encodeHex(sha256(standardChain.cabundle[0] ?? new Uint8Array()))
const pem = `-----BEGIN CERTIFICATE-----\n${Buffer.from(standardChain.cabundle[0] ?? []).toString('base64')}\n-----END CERTIFICATE-----\n`
const SIGNED = signRelease(buildOtherRelease(), SECRET_KEYS[0] ?? new Uint8Array())
const KEY = encodeHex(PUBLIC_KEYS[0] ?? new Uint8Array())
const policyOf = (code: Code) => ({
  enclaves: {
    ...(code === 'release' ? { releases: SIGNED, releaseKeys: KEY } : { measurements: [code] }),
    configurations: [encodeHex(digestOf(BOOT_CONFIGURATION))],
    roots: [pem],
  },
})

const save = saverIn(folderOfFile())
let endpoint: ScriptedEndpoint
let chainId = chain.chainId
beforeAll(async () => {
  vi.stubGlobal('isSecureContext', true)
  endpoint = await startScriptedEndpoint(({ json }) => {
    const reply = ({ id, method }: { id: unknown; method: string }) => ({
      jsonrpc: '2.0',
      id,
      result: {
        eth_chainId: `0x${chainId.toString(16)}`,
        eth_blockNumber: `0x${chain.newestBlock.toString(16)}`,
        eth_getBlockByNumber: { hash: chain.blockHash },
      }[method],
    })
    return Array.isArray(json) ? json.map(reply) : reply(json as { id: unknown; method: string })
  })
})
afterAll(async () => {
  vi.unstubAllGlobals()
  await endpoint.stop()
})

/** Measurements by register, or the code of another release, signed. */
type Code = Readonly<Record<string, string>> | 'release'

type Given = {
  readonly calls: readonly EvidenceBundle[]
  /** The code that the policy accepts. Null: no policy. */
  readonly code?: Code | null
  readonly chain?: 'right' | 'wrong' | 'dead'
  readonly answer?: EvidenceBundle
}

/** The first two lines and the exit code of the command, and the verdict of the page. */
async function check({ calls, code: accepted = OWN, chain: asked, answer }: Given) {
  const text = writeEvidenceLines(calls as unknown as readonly JsonObject[])
  const file = await save('evidence.json', text)
  const policy = accepted === null ? null : policyOf(accepted)
  chainId = asked === 'wrong' ? 1 : chain.chainId
  const rpc = asked === undefined ? null : asked === 'dead' ? 'http://127.0.0.1:1' : endpoint.origin
  const { code, stdout } = await runCommand(
    'verify',
    file,
    ...(policy === null ? [] : ['--policy', await save('policy.json', policy)]),
    ...(rpc === null ? [] : ['--rpc', rpc]),
    ...(answer === undefined ? [] : ['--answer', await save('saved.json', writeEvidence(answer))]),
  )
  const job: Job = {
    kind: 'evidence',
    policy: {
      ...NO_POLICY,
      ...(policy === null
        ? {}
        : {
            ...(typeof accepted === 'string'
              ? { releases: [new Blob([JSON.stringify(SIGNED)])], releaseKeys: KEY }
              : {
                  measurements: Object.entries(accepted ?? {})
                    .map(([name, value]) => `${name}=${value}`)
                    .join('\n'),
                }),
            configurations: policy.enclaves.configurations.join('\n'),
            rootText: pem,
          }),
    },
    request: null,
    answer: answer === undefined ? null : new Blob([writeEvidence(answer)]),
    idempotent: false,
    rpc,
    source: new Blob([text]),
  }
  const outcome = await runJob(job, () => undefined)
  return {
    lines: stdout.split('\n').slice(0, 2),
    code,
    page: memberAt(outcome, 'judged', 'verdict') ?? outcome,
  }
}

const SAID =
  "An enclave that runs code that you expect signed this question and this answer, and neither was changed since. The enclave's clock said 2026-03-04 05:07:07 UTC. “demo” answered with model “demo/echo-2025”."
const NOT_LOOKED_UP =
  'Block 21000000 says 2026-03-04 05:07:20 UTC, but was not looked up: the chain has not confirmed this.'
const OWN_ROOT =
  "You accept a root that is not AWS's, such as the root of a development enclave: this proves nothing to other people."
const ASK_FOR_COPY =
  "A file has only the hash of what was signed. To see the signed text, ask for another copy, for the gateway's record, or for a later call of the session, which repeats it."
const REFUSED =
  'Nothing was found to be changed, but do not rely on this: you do not accept who signed it.'

describe('the verdict of a file', () => {
  it.each<[string, Given, readonly string[], number, string]>([
    [
      'an altered answer',
      { calls: [changed('response', altered(answerOf(bundle)))] },
      [
        'INVALID: failed at response hash, hash, signature, receipt.',
        `Do not rely on this: it was changed or forged. The answer in this file is not the one that was signed. ${ASK_FOR_COPY}`,
      ],
      1,
      'invalid',
    ],
    [
      'an altered question',
      { calls: [changed('request', { model: 'demo/echo', messages: [] })] },
      [
        'INVALID: failed at request hash, hash, signature, receipt.',
        `Do not rely on this: it was changed or forged. The question in this file is not the one that was signed. ${ASK_FOR_COPY}`,
      ],
      1,
      'invalid',
    ],
    [
      "another vendor's honest file",
      { calls: [bundle], code: OTHER },
      [
        'NOT ACCEPTED by your policy: measurements: measurement_mismatch: PCR0: expected b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0, got 939ae374d72b03567803981206eef2c30923a420d868da1d8960ac8eabaaf20f2a8bd56b65a1de799394e23fd648f501.',
        REFUSED,
      ],
      1,
      'not_accepted',
    ],
    [
      'an own root without a policy',
      { calls: [bundle], code: null },
      [
        `NOT ACCEPTED by your policy: attestation document: root_untrusted: expected the root with the SHA-256 641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b, got ${ROOT}.`,
        REFUSED,
      ],
      1,
      'not_accepted',
    ],
    [
      'a policy for another release',
      { calls: [bundle], code: 'release' },
      [
        'NOT ACCEPTED by your policy: measurements: measurement_mismatch: expected the code of release 1.3.9 (commit 0123456789abcdef0123456789abcdef01234567), got 939ae374d72b03567803981206eef2c30923a420d868da1d8960ac8eabaaf20f2a8bd56b65a1de799394e23fd648f501 in PCR0.',
        REFUSED,
      ],
      1,
      'not_accepted',
    ],
    [
      'a wrong chain',
      { calls: [bundle], chain: 'wrong' },
      [
        'VERIFIED: nothing failed, and everything that is needed was checked. Not checked: block on chain.',
        `${SAID} ${NOT_LOOKED_UP} ${OWN_ROOT} Not shown: that the answer is true.`,
      ],
      2,
      'verified',
    ],
    [
      'a dead chain',
      { calls: [bundle], chain: 'dead' },
      [
        'VERIFIED: nothing failed, and everything that is needed was checked. Not checked: block on chain.',
        `${SAID} ${NOT_LOOKED_UP} ${OWN_ROOT} Not shown: that the answer is true.`,
      ],
      3,
      'verified',
    ],
    [
      'the right chain',
      { calls: [bundle], chain: 'right' },
      [
        'VERIFIED: nothing failed, and everything that is needed was checked.',
        `${SAID} Block 21000000 says 2026-03-04 05:07:20 UTC and is on the chain that you asked: this was made no later. ${OWN_ROOT} Not shown: that the answer is true.`,
      ],
      0,
      'verified',
    ],
    [
      'a file before its anchor',
      { calls: [{ ...bundle, transaction: null, block: null }] },
      [
        'INCOMPLETE: nothing failed, but this was not checked: transaction hash, anchor, block header, anchor time, transaction in block, anchor outcome.',
        `${SAID} There is no block yet: the chain has not confirmed this. ${OWN_ROOT} Not shown: that the answer was recorded on the chain; that the answer is true.`,
      ],
      3,
      'incomplete',
    ],
    [
      'a redacted file',
      { calls: [redactBundle(bundle, { request: true })] },
      [
        'INCOMPLETE: nothing failed, but this was not checked: request hash.',
        `${SAID} ${NOT_LOOKED_UP} ${OWN_ROOT} Not shown: what was asked; that the answer is true.`,
      ],
      3,
      'incomplete',
    ],
    [
      'an encrypted call without its texts',
      { calls: [withoutTexts] },
      [
        'INCOMPLETE: nothing failed, but this was not checked: request hash, response hash.',
        `${SAID} ${NOT_LOOKED_UP} ${OWN_ROOT} Not shown: what was asked; what was answered; that the answer is true.`,
      ],
      3,
      'incomplete',
    ],
    [
      'an encrypted call with its texts',
      { calls: [withoutTexts], answer: saved },
      [
        'VERIFIED: nothing failed, and everything that is needed was checked. Not checked: block on chain.',
        `${SAID} ${NOT_LOOKED_UP} ${OWN_ROOT} Not shown: that the answer is true.`,
      ],
      0,
      'verified',
    ],
    [
      'a session with one bad call among ten',
      { calls: oneOfTen },
      [
        'INVALID: failed at evidence of calls.',
        `Do not rely on this: it was changed or forged. In this file, the evidence of call 6 is invalid. The answer in this file is not the one that was signed. ${ASK_FOR_COPY}`,
      ],
      1,
      'invalid',
    ],
    [
      'a session of ten calls',
      { calls: TEN },
      [
        'VERIFIED: nothing failed, and everything that is needed was checked.',
        `These are 10 calls of one session, signed by one notary, and none was changed since. ${OWN_ROOT} Not shown: that the answer is true; what a tool did: its answer is what the caller sent; calls that the caller made outside of the session.`,
      ],
      0,
      'verified',
    ],
  ])(
    'the command and the page give these words and verdicts for %s',
    async (_, given, lines, code, page) => {
      expect(await check(given)).toEqual({ lines, code, page })
    },
  )
})
