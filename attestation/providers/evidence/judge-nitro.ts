import { decodeBase64, encodeHex, equalBytes, sha256 } from '../../bytes.ts'
import { digestBootConfiguration } from '../../evidence/boot-configuration.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { isJsonArray, type Json, type JsonObject, memberAt, memberOf } from '../../json/value.ts'
import { DER_TAGS } from '../../nitro/der.ts'
import type { AttestationFacts } from '../../nitro/facts.ts'
import { verifyAttestation } from '../../nitro/verify-attestation.ts'
import { asProviderFault } from '../provider-chain.ts'
import { blockedBy, established, notGiven, waived } from '../provider-checks.ts'
import { tryDecodeDer } from '../try-decode-der.ts'
import { parsedAs, refuseEvidence } from './evidence-codes.ts'
import { findAnswer } from './find-answer.ts'
import {
  type BoundKey,
  type Judging,
  type KindFacts,
  NO_KIND_FACTS,
  UNKNOWN_WEIGHTS,
} from './judging.ts'
import { checkWeights } from './model-weights.ts'

type NitroAnswer = { readonly document: Uint8Array; readonly configuration: JsonObject }

/** Judges the attestation document and boot configuration of a provider that runs Affidavit. */
export async function judgeNitro(judging: Judging): Promise<KindFacts> {
  const { evidence, terms, checks, at } = judging
  const answer = await checks.make('answer', () => {
    const json = parsedAs('answer_malformed', () => parseExactJson(findAnswer(evidence)))
    return established(parsedAs('answer_malformed', () => readAnswer(json)))
  })
  await checks.make('collateral', () => waived('a document of AWS needs none'))
  const enclave = terms.code?.by === 'enclave' ? terms.code : null
  const document = await checks.make('hardware', async () => {
    if (answer === null) return blockedBy('answer')
    const policy = { measurements: enclave?.measurements ?? 'any', roots: terms.roots.aws } as const
    const facts = await asProviderFault(async () => verifyAttestation(answer.document, policy, at))
    return established(facts, facts.moduleId)
  })
  await checks.make('challenge', () => {
    if (document === null) return blockedBy('hardware')
    if (document.nonce === null || !equalBytes(document.nonce, evidence.nonce))
      throw refuseEvidence('challenge_mismatch', 'expected a document over the nonce')
    return established(true, encodeHex(evidence.nonce))
  })
  const tlsKeys = await checks.make('key binding', () => {
    if (answer === null || document === null) return blockedBy('hardware')
    const keys = keysOf(document, answer.configuration)
    return established(keys, keys.map(({ spkiSha256 }) => spkiSha256).join(', '))
  })
  const digest = answer && digestBootConfiguration(answer.configuration)
  const code = await checks.make('code', () => {
    if (enclave === null) return notGiven('a policy was')
    if (document === null || digest === null) return blockedBy('hardware')
    if (tlsKeys === null) return blockedBy('key binding')
    if (!enclave.configurations.some((one) => equalBytes(one, digest)))
      throw refuseEvidence('configuration_not_accepted', 'expected an accepted boot configuration')
    const found = {
      by: 'enclave',
      repository: null,
      release: null,
      digest: encodeHex(digest),
    } as const
    return established(found, `PCR0 ${pcrsOf(document).PCR0}, configuration ${found.digest}`)
  })
  await checks.make('GPU', () => waived('an enclave of AWS has no GPU'))
  await checkWeights(judging, UNKNOWN_WEIGHTS)
  if (document === null) return NO_KIND_FACTS
  return {
    ...NO_KIND_FACTS,
    tee: 'Nitro',
    measurements: pcrsOf(document),
    isDebugOff: !document.isDebugMode,
    tlsKeys: tlsKeys ?? [],
    code,
    endsAtMs: Math.min(...document.certificates.map(({ notAfterMs }) => notAfterMs)),
  }
}

const { invalid, objectOf, textOf } = formsOf('answer_malformed')

function readAnswer(json: Json): NitroAnswer {
  const configuration = objectOf(memberAt(json, 'boot_configuration'), 'boot_configuration')
  if (Object.hasOwn(configuration, 'format'))
    throw invalid('boot_configuration', 'without a member format')
  return {
    document: decodeBase64(textOf(memberAt(json, 'attestation'), 'attestation')),
    configuration,
  }
}

function pcrsOf({ measurements }: AttestationFacts): Readonly<Record<string, string>> {
  return Object.fromEntries(
    [...measurements].map(([index, value]) => [`PCR${index}`, encodeHex(value)]),
  )
}

const KEYS_MAX = 64

/**
 * Returns the key `public_key`, if it is a SubjectPublicKeyInfo, and the keys that the boot
 * configuration states in `tls_public_keys` (SHA-256, hex). The document binds the configuration by
 * its digest in `user_data`.
 */
function keysOf(
  { publicKey, userData }: AttestationFacts,
  configuration: JsonObject,
): readonly BoundKey[] {
  if (userData === null || !equalBytes(userData, digestBootConfiguration(configuration)))
    throw refuseEvidence('configuration_mismatch', 'expected user_data of the boot configuration')
  const stated = memberOf(configuration, 'tls_public_keys') ?? []
  const hashes = isJsonArray(stated) ? stated.slice(0, KEYS_MAX) : []
  const keys = hashes.filter((hash) => typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash))
  const own = publicKey && isKeyInfo(publicKey) ? [encodeHex(sha256(publicKey))] : []
  const all = [...new Set([...own, ...keys.map(String)])]
  if (all.length === 0)
    throw refuseEvidence(
      'tls_key_missing',
      'expected a TLS key as public_key, or in the configuration',
    )
  return all.map((spkiSha256) => ({ spkiSha256, domain: null }))
}

/**
 * True for a SubjectPublicKeyInfo (an algorithm and a bit string), not for a notary's bare point.
 */
function isKeyInfo(bytes: Uint8Array): boolean {
  const { children = [] } = tryDecodeDer(new Uint8Array(bytes)) ?? {}
  return children.length === 2 && children[1]?.tag === DER_TAGS.bitString
}
