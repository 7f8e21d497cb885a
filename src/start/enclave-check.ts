import { decodeBase64, decodeHex, encodeUtf8, equalBytes, sha256 } from '../../attestation/bytes.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import { AttestationError } from '../../attestation/nitro/attestation-error.ts'
import { verifyAttestation } from '../../attestation/nitro/verify-attestation.ts'
import type { LogDomain } from '../../attestation/tree-head.ts'
import { type Identity, PROTOCOL_VERSION } from '../../enclave/protocol/messages.ts'

/**
 * Gives what is wrong with an enclave for this gateway, a sentence each: another protocol, another chain or contract, and
 * for production a document that is not AWS's or not of this enclave, or providers that are reached in the clear.
 *
 * Does NOT prove that the enclave runs good code: which measurements are acceptable is for those who rely on its records.
 */
export async function findEnclaveFaults(
  identity: Identity,
  expected: { readonly domain: LogDomain; readonly isProduction: boolean; readonly at: Date },
): Promise<readonly string[]> {
  const faults = domainFaults(identity, expected.domain)
  return expected.isProduction ? [...faults, ...(await productionFaults(identity, expected.at))] : faults
}

function domainFaults({ boot_configuration: boot }: Identity, domain: LogDomain): readonly string[] {
  const faults: string[] = []
  if (boot.protocol_version !== PROTOCOL_VERSION)
    faults.push(`enclave: expected protocol version ${PROTOCOL_VERSION}, got ${boot.protocol_version}`)
  if (boot.chain_id !== domain.chainId)
    faults.push(`enclave: expected it to sign for chain ${domain.chainId}, got ${boot.chain_id}`)
  if (boot.contract !== domain.contract)
    faults.push(`enclave: expected it to sign for contract ${domain.contract}, got ${boot.contract}`)
  return faults
}

async function productionFaults(identity: Identity, at: Date): Promise<readonly string[]> {
  const clear = identity.boot_configuration.providers.filter(({ origin }) => !origin.startsWith('https://'))
  const faults = clear.map(({ name }) => `enclave: expected production to reach provider ${name} over https`)
  const attestation = await findAttestationFault(identity, at)
  return attestation === null ? faults : [...faults, `enclave: ${attestation}`]
}

async function findAttestationFault(identity: Identity, at: Date): Promise<string | null> {
  try {
    const facts = await verifyAttestation(decodeBase64(identity.attestation), { measurements: 'any' }, at)
    const digest = sha256(encodeUtf8(canonicalizeJson(identity.boot_configuration)))
    if (facts.publicKey === null || !equalBytes(facts.publicKey, decodeHex(identity.public_key)))
      return 'expected its attestation document to carry its key'
    if (facts.userData === null || !equalBytes(facts.userData, digest))
      return 'expected its attestation document to carry the digest of its boot configuration'
    return null
  } catch (error) {
    if (!(error instanceof AttestationError)) throw error
    const hint = error.code === 'root_untrusted' ? ': is its security module simulated?' : ''
    return `expected an attestation document that AWS signed in production, got ${error.code}${hint}`
  }
}
