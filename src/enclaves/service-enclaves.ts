import type { EncryptionKey } from '#attestation/encryption-key.ts'
import { NOTARIES_MAX } from '#attestation/notary-list.ts'
import type { EnclavePool, ServedNotary } from './enclave-pool.ts'
import type { EncryptedEndpoint, PeerEnclaves } from './peer-enclaves.ts'

/** The enclaves of this gateway and, with a bus, of the other gateways. */
export type ServiceEnclaves = {
  /** At most NOTARIES_MAX, each once. The notaries of this gateway come first. */
  notaries(): readonly ServedNotary[]
  /**
   * Returns the enclave of `notary` (0x, lower case). For null, returns the enclave whose keys
   * `wellKnownKeys` returns. Returns null if the enclave is gone or accepts no encrypted calls.
   */
  findEncrypted(notary: string | null): EncryptedEndpoint | null
  /**
   * As EnclavePool does. A call that names an enclave of another gateway is made there, unless this
   * gateway uses that enclave too.
   */
  complete: EnclavePool['complete']
  /**
   * One enclave's keys, for clients that name no enclave. All gateways return the same keys while
   * that enclave is in use. Empty if no enclave accepts encrypted calls.
   */
  wellKnownKeys(): readonly EncryptionKey[]
}

/** `peers` is null if the gateway works alone. */
export function joinEnclaves(
  enclaves: Pick<EnclavePool, 'notaries' | 'findEncrypted' | 'complete'>,
  peers: Pick<PeerEnclaves, 'notaries' | 'endpoint' | 'complete'> | null,
): ServiceEnclaves {
  function notaries(): readonly ServedNotary[] {
    const own = enclaves.notaries()
    if (peers === null) return own
    const known = new Map(own.map((notary) => [notary.notary, notary]))
    for (const notary of peers.notaries())
      if (!known.has(notary.notary)) known.set(notary.notary, notary)
    return [...known.values()].slice(0, NOTARIES_MAX)
  }

  function wellKnown(): ServedNotary | null {
    const usable = notaries().filter(({ encryption_keys: keys }) => keys.length > 0)
    return usable.toSorted((one, other) => (one.notary < other.notary ? -1 : 1))[0] ?? null
  }

  return {
    notaries,
    wellKnownKeys: () => wellKnown()?.encryption_keys ?? [],
    complete(wanted, ...call) {
      const isOwn = enclaves
        .notaries()
        .some(({ notary, status }) => notary === wanted.notary && status === 'in_use')
      const passed = isOwn || wanted.notary === null ? null : peers?.complete(wanted, ...call)
      return passed ?? enclaves.complete(wanted, ...call)
    },
    findEncrypted(asked) {
      const notary = asked ?? wellKnown()?.notary
      if (notary === undefined) return null
      return enclaves.findEncrypted(notary) ?? peers?.endpoint(notary) ?? null
    },
  }
}
