import { addressOf } from '#attestation/account.ts'
import { decodeHex } from '#attestation/bytes.ts'
import type { EncryptionKey } from '#attestation/encryption-key.ts'
import { verifyEncryptionKey } from '#attestation/verify-encryption-key.ts'
import type { CheckedIdentity } from './enclave-check.ts'
import type { ServedNotary } from './enclave-pool.ts'

/** createEnclaveCheck returns this function. */
export type IdentityCheck = (identity: CheckedIdentity) => Promise<readonly string[]>

/**
 * Checks the notaries of another gateway. Returns the notaries that this gateway would use itself.
 * A notary's address must belong to its public key. The document and the configuration must pass
 * the check for this gateway's enclaves. Encryption keys that the notary did not sign are removed.
 * `nowMs` is Unix milliseconds. `onFault` is called with the reason if a notary is left out.
 */
export async function verifyPeerNotaries(
  published: readonly ServedNotary[],
  parts: {
    readonly check: IdentityCheck
    readonly nowMs: number
    readonly onFault: (notary: string, fault: string) => void
  },
): Promise<readonly ServedNotary[]> {
  const verified = await Promise.all(
    published.map(async (notary) => {
      const fault = await faultOf(notary, parts.check)
      if (fault === null) return withOwnKeys(notary, parts.nowMs)
      parts.onFault(notary.notary, fault)
      return null
    }),
  )
  return verified.filter((notary) => notary !== null)
}

async function faultOf(served: ServedNotary, check: IdentityCheck): Promise<string | null> {
  try {
    const { notary, public_key: publicKey } = served
    if (addressOf(decodeHex(publicKey)) !== notary) return 'its address is not that of its key'
    const faults = await check(served)
    return faults.length === 0 ? null : faults.join(', ')
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

/** Keeps only valid encryption keys that the notary signed. */
function withOwnKeys(notary: ServedNotary, nowMs: number): ServedNotary {
  const { chain_id: chainId, contract } = notary.boot_configuration
  const domain = { chainId, contract }
  const isOwn = (key: EncryptionKey) => {
    try {
      verifyEncryptionKey({ key, domain, notary: notary.notary, atMs: nowMs })
      return true
    } catch {
      return false
    }
  }
  return { ...notary, encryption_keys: notary.encryption_keys.filter(isOwn) }
}
