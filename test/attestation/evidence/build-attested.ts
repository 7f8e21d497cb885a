import { encodeHex, encodeUtf8, sha256 } from '#attestation/bytes.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { writeProviderEvidence } from '#attestation/providers/evidence/evidence-document.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import {
  type BuiltKind,
  buildProviderEvidence,
  type EvidenceChanges,
  ORIGIN,
  TLS_KEY,
} from '../../support/provider-builder/evidence-builder.ts'
import { RESPONSE } from '../build-record.ts'
import { type BuiltEvidence, buildEvidence, type EvidenceParts } from './build-evidence.ts'

/** The model that the builder's configuration measures. */
export const PROVEN_MODEL = 'example-31b'

/** A bundle with evidence of its provider, and the policies that accept both. */
export type BuiltAttested = BuiltEvidence & {
  readonly policy: BundlePolicy
  /** The provider's policy as its file. */
  readonly providerPolicy: Uint8Array
}

/** Evidence of a provider under development roots, and the policy that accepts it. */
export function buildProvider(
  kind: BuiltKind = 'tinfoil v3 TDX',
  changes: EvidenceChanges = {},
): { readonly bytes: Uint8Array; readonly policyFile: Uint8Array } {
  const { evidence, policy } = buildProviderEvidence(kind, changes)
  return {
    bytes: writeProviderEvidence(evidence),
    policyFile: encodeUtf8(JSON.stringify(policy)),
  }
}

/** A valid bundle whose receipt names the TLS key that the provider's evidence states. */
export function buildAttested(
  kind?: BuiltKind,
  changes?: EvidenceChanges,
  { record = {}, ...parts }: EvidenceParts = {},
): BuiltAttested {
  const { bytes, policyFile } = buildProvider(kind, changes)
  const { bundle, policy, chain } = buildEvidence({
    ...parts,
    record: {
      response: { ...RESPONSE, model: PROVEN_MODEL },
      ...record,
      receipt: { provider: providerWith(TLS_KEY), ...record.receipt },
    },
  })
  return {
    bundle: withProvider(bundle, bytes),
    policy: { ...policy, providers: [parseProviderPolicy(policyFile)] },
    providerPolicy: policyFile,
    chain,
  }
}

/** The receipt's provider with this key, and the origin of the evidence. */
export function providerWith(spki: string, origin: string = ORIGIN) {
  return {
    name: 'demo',
    origin,
    tls: {
      protocol: 'TLSv1.3',
      spki_sha256: spki,
      subject: 'CN=provider.example',
      issuer: 'CN=A CA',
    },
  }
}

/** A document about the provider, as evidence has it. */
export function providerPart(bytes: Uint8Array) {
  return { sha256: encodeHex(sha256(bytes)), document: Buffer.from(bytes).toString('base64') }
}

/** The bundle with these bytes as evidence of its provider. */
export function withProvider(bundle: EvidenceBundle, bytes: Uint8Array): EvidenceBundle {
  const json: JsonObject = {
    ...(JSON.parse(JSON.stringify(bundle)) as JsonObject),
    provider_evidence: providerPart(bytes),
  }
  return parseEvidenceBundle(json)
}
