import { decodeBase64, decodeHex, encodeHex, encodeUtf8, equalBytes, sha256 } from '../../bytes.ts'
import { canonicalizeJson } from '../../json/canonical.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, memberAt } from '../../json/value.ts'
import { blockedBy, established } from '../provider-checks.ts'
import { parsedAs, refuseEvidence } from './evidence-codes.ts'
import { findAnswer } from './find-answer.ts'
import { type ApplicationEvidence, judgeApplication } from './judge-application.ts'
import { jsonBytesOf, readCompose, readConfigDocument } from './judge-dstack.ts'
import { judgeGpus } from './judge-gpus.ts'
import {
  type BoundKey,
  earliestOf,
  type Judging,
  type KindFacts,
  UNKNOWN_WEIGHTS,
} from './judging.ts'
import { readKeptCollateral } from './kept-collateral.ts'
import { checkWeights } from './model-weights.ts'

type AciAnswer = ApplicationEvidence & {
  /** The bytes that the keyset's digest covers: the keyset as served, or as canonical JSON. */
  readonly keyset: Uint8Array
  readonly statedDigest: string
  /** Unix seconds. */
  readonly notAfter: number
  readonly keys: readonly BoundKey[]
}

/** Judges the report of an ACI service (aci/1) on dstack. */
export async function judgeAci(judging: Judging): Promise<KindFacts> {
  const { evidence, checks, at } = judging
  const answer = await checks.make('answer', () => established(readAciAnswer(findAnswer(evidence))))
  const collateral = await checks.make('collateral', () =>
    established(readKeptCollateral(evidence.collateral)),
  )
  const facts = await judgeApplication(judging, { answer, collateral }, (reportData) => {
    if (answer === null) throw refuseEvidence('tls_key_missing', 'expected a keyset')
    checkBinding(answer, { reportData, nonce: evidence.nonce })
    if (answer.notAfter * 1000 <= at.getTime())
      throw refuseEvidence('keyset_expired', 'expected a keyset that is in force')
    const host = new URL(evidence.origin).hostname
    const keys = answer.keys.filter(({ domain }) => domain === null || domain === host)
    if (keys.length === 0)
      throw refuseEvidence('tls_key_missing', `expected a TLS key for ${host} in the keyset`)
    return keys
  })
  await checks.make('challenge', () =>
    facts.tlsKeys.length === 0
      ? blockedBy('key binding')
      : established(true, 'the report data is of keyset and nonce'),
  )
  const keysEndMs = answer && facts.tlsKeys.length > 0 ? answer.notAfter * 1000 : null
  const endsAtMs = earliestOf(facts.endsAtMs, keysEndMs)
  const gpus = await judgeGpus(judging, { read: () => [], tie: '', endsAtMs })
  await checkWeights(judging, UNKNOWN_WEIGHTS)
  return { ...facts, ...gpus }
}

const { arrayOf, countOf, hexOf, invalid, textOf } = formsOf('answer_malformed')
const KEYS_MAX = 64

/** The body is attacker-controlled. Throws ProviderEvidenceError. */
export function readAciAnswer(body: Uint8Array): AciAnswer {
  return parsedAs('answer_malformed', () => readReport(parseExactJson(body)))
}

function readReport(json: Json): AciAnswer {
  const at = (...path: readonly string[]) => memberAt(json, ...path)
  if (at('api_version') !== 'aci/1') throw invalid('api_version', 'aci/1')
  if (at('attestation', 'tee_type') !== 'tdx') throw invalid('tee_type', 'tdx')
  const { bytes, value } = readKeyset(json)
  const keys = arrayOf(memberAt(value, 'tls_public_keys'), 'tls_public_keys', {
    min: 0,
    max: KEYS_MAX,
  })
  const evidence = at('attestation', 'evidence')
  const compose = memberAt(evidence, 'app_compose')
  return {
    quote: readQuote(evidence),
    eventLog: jsonBytesOf(memberAt(evidence, 'event_log'), 'event_log'),
    appCompose:
      typeof compose === 'string'
        ? encodeUtf8(compose)
        : readCompose(memberAt(evidence, 'info', 'tcb_info')),
    configDocument: readConfigDocument(
      memberAt(evidence, 'vm_config') ?? memberAt(evidence, 'info', 'vm_config'),
    ),
    keyset: bytes,
    statedDigest: textOf(at('workload_keyset_digest'), 'workload_keyset_digest'),
    notAfter: countOf(memberAt(value, 'not_after'), 'not_after'),
    keys: keys.map((key) => {
      const domain = memberAt(key, 'domain') ?? null
      return {
        spkiSha256: hexOf(memberAt(key, 'spki_sha256'), 'spki_sha256', 32),
        domain: domain === null ? null : textOf(domain, 'domain'),
      }
    }),
  }
}

function readKeyset(json: Json): { readonly bytes: Uint8Array; readonly value: Json } {
  const served = memberAt(json, 'attestation', 'workload_keyset_b64')
  if (served !== undefined) {
    const bytes = decodeBase64(textOf(served, 'workload_keyset_b64'))
    return { bytes, value: parseExactJson(bytes) }
  }
  const value = memberAt(json, 'attestation', 'workload_keyset')
  if (value === undefined) throw invalid('the report', 'with a keyset')
  return { bytes: encodeUtf8(canonicalizeJson(value)), value }
}

function readQuote(evidence: Json | undefined): Uint8Array {
  const base64 = memberAt(evidence, 'quote_b64')
  if (base64 !== undefined) return decodeBase64(textOf(base64, 'quote_b64'))
  return decodeHex(textOf(memberAt(evidence, 'quote'), 'quote'))
}

function checkBinding(
  { keyset, statedDigest }: AciAnswer,
  { reportData, nonce }: { readonly reportData: Uint8Array; readonly nonce: Uint8Array },
): void {
  const digest = `sha256:${encodeHex(sha256(keyset))}`
  if (digest !== statedDigest)
    throw refuseEvidence('keyset_digest_mismatch', 'expected the digest of the keyset')
  const statement = {
    keyset_digest: digest,
    nonce: encodeHex(nonce),
    purpose: 'aci.report_data.v1',
  }
  const bound = sha256(encodeUtf8(canonicalizeJson(statement)))
  const isZero = reportData.subarray(32).every((byte) => byte === 0)
  if (!equalBytes(bound, reportData.subarray(0, 32)) || !isZero)
    throw refuseEvidence('key_binding_mismatch', 'expected report data of keyset and nonce')
}
