import { concatBytes, decodeHex, encodeHex, encodeUtf8, equalBytes, sha256 } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { canonicalizeJson } from '../../json/canonical.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, memberAt } from '../../json/value.ts'
import { blockedBy, established } from '../provider-checks.ts'
import { parsedAs, refuseEvidence } from './evidence-codes.ts'
import { findAnswer } from './find-answer.ts'
import { type ApplicationEvidence, judgeApplication } from './judge-application.ts'
import { judgeGpus, readDevices } from './judge-gpus.ts'
import { type Judging, type KindFacts, type ProviderModel, UNKNOWN_WEIGHTS } from './judging.ts'
import { readKeptCollateral } from './kept-collateral.ts'
import { checkWeights } from './model-weights.ts'

type DstackAnswer = ApplicationEvidence & {
  /** The address (20 bytes) or the key (32 bytes) of the signer of answers. */
  readonly address: Uint8Array
  /** SHA-256 of the SubjectPublicKeyInfo. Null if the answer does not state it. */
  readonly fingerprint: Uint8Array | null
  readonly devices: Json | null
  readonly claimedModel: string | null
}

/** Judges the report of a service on dstack, as NEAR AI and dstack-vllm-proxy serve it. */
export async function judgeDstack(judging: Judging): Promise<KindFacts> {
  const { evidence, checks } = judging
  const answer = await checks.make('answer', () =>
    established(readDstackAnswer(findAnswer(evidence))),
  )
  const collateral = await checks.make('collateral', () =>
    established(readKeptCollateral(evidence.collateral)),
  )
  let isForNonce = false
  const facts = await judgeApplication(judging, { answer, collateral }, (reportData) => {
    isForNonce = equalBytes(reportData.subarray(32), evidence.nonce)
    return keysOf(answer, reportData)
  })
  await checks.make('challenge', () => {
    if (facts.tee === null) return blockedBy('hardware')
    if (!isForNonce)
      throw refuseEvidence('challenge_mismatch', 'expected report data that ends with the nonce')
    return established(true, encodeHex(evidence.nonce))
  })
  const gpus = await judgeGpus(judging, {
    read: () => readDevices(answer?.devices ?? []),
    tie: 'only the nonce ties them to the machine',
    endsAtMs: facts.endsAtMs,
  })
  const model = modelOf(answer)
  await checkWeights(judging, model)
  return { ...facts, model, ...gpus }
}

const { invalid, objectOf, textOf } = formsOf('answer_malformed')

/** The body is attacker-controlled. Throws ProviderEvidenceError. */
export function readDstackAnswer(body: Uint8Array): DstackAnswer {
  return parsedAs('answer_malformed', () => readReport(parseExactJson(body)))
}

function readReport(json: Json): DstackAnswer {
  const gateway = memberAt(json, 'gateway_attestation') ?? json
  const at = (...path: readonly string[]) => memberAt(gateway, ...path)
  const fingerprint = at('tls_cert_fingerprint') ?? null
  const address = decodeHex(textOf(at('signing_address'), 'signing_address'))
  if (address.length !== 20 && address.length !== 32)
    throw invalid('signing_address', '20 or 32 bytes of hex')
  const model = at('model_name') ?? null
  return {
    quote: decodeHex(textOf(at('intel_quote'), 'intel_quote')),
    eventLog: jsonBytesOf(at('event_log'), 'event_log'),
    appCompose: readCompose(at('info', 'tcb_info')),
    configDocument: readConfigDocument(at('info', 'vm_config') ?? at('vm_config')),
    address,
    fingerprint: fingerprint === null ? null : readFingerprint(fingerprint),
    devices: readPayload(at('nvidia_payload') ?? null),
    claimedModel: model === null ? null : textOf(model, 'model_name'),
  }
}

function readFingerprint(json: Json): Uint8Array {
  const bytes = decodeHex(textOf(json, 'tls_cert_fingerprint'))
  if (bytes.length !== 32) throw invalid('tls_cert_fingerprint', '32 bytes of hex')
  return bytes
}

/** Services send this JSON as a value, or as a string that contains the JSON. */
export function jsonBytesOf(json: Json | undefined, name: string): Uint8Array {
  if (json === undefined || json === null) throw invalid(name, 'JSON, or its text')
  return encodeUtf8(typeof json === 'string' ? json : canonicalizeJson(json))
}

/** `tcbInfo` is an object, or the JSON text of an object. */
export function readCompose(tcbInfo: Json | undefined): Uint8Array | null {
  if (tcbInfo === undefined || tcbInfo === null || tcbInfo === '') return null
  const info = typeof tcbInfo === 'string' ? parseExactJson(encodeUtf8(tcbInfo)) : tcbInfo
  const compose = memberAt(objectOf(info, 'tcb_info'), 'app_compose')
  return compose === undefined || compose === null
    ? null
    : encodeUtf8(textOf(compose, 'app_compose'))
}

/**
 * Returns the document of MRCONFIGID form 3. `vmConfig` is an object, or the JSON text of an
 * object. Null for any other form, because the host can write anything into `vmConfig`.
 */
export function readConfigDocument(vmConfig: Json | undefined): Uint8Array | null {
  try {
    const config = typeof vmConfig === 'string' ? parseExactJson(encodeUtf8(vmConfig)) : vmConfig
    const document = memberAt(config, 'mr_config')
    return typeof document === 'string' ? encodeUtf8(document) : null
  } catch (fault) {
    if (fault instanceof FormatError) return null
    throw fault
  }
}

/** A payload for NVIDIA's service is an object, or the JSON text of an object. */
function readPayload(json: Json): Json | null {
  if (json === null) return null
  const payload = typeof json === 'string' ? parseExactJson(encodeUtf8(json)) : json
  return memberAt(payload, 'evidence_list') ?? null
}

/** The first 32 bytes of the report data are SHA-256( address || fingerprint ). */
function keysOf(answer: DstackAnswer | null, reportData: Uint8Array): KindFacts['tlsKeys'] {
  if (!answer?.fingerprint)
    throw refuseEvidence('tls_key_missing', 'expected the fingerprint of a TLS key')
  const bound = sha256(concatBytes(answer.address, answer.fingerprint))
  if (!equalBytes(bound, reportData.subarray(0, 32)))
    throw refuseEvidence('key_binding_mismatch', 'expected report data of address and TLS key')
  return [{ spkiSha256: encodeHex(answer.fingerprint), domain: null }]
}

function modelOf(answer: DstackAnswer | null): ProviderModel {
  if (!answer?.claimedModel) return UNKNOWN_WEIGHTS
  const name = JSON.stringify(answer.claimedModel.slice(0, 100))
  const reason = `the service names the model ${name}`
  return { ...UNKNOWN_WEIGHTS, weights: 'provider_claimed', reason }
}
