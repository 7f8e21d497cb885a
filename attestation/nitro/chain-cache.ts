import { concatBytes, encodeHex, sha256 } from '../bytes.ts'
import type { Certificate } from './certificate.ts'
import type { P384Key } from './p384.ts'

/** Chains kept when the caller does not say: one for each enclave in use at a time, about 8 KB each. */
export const CHAINS_MAX_DEFAULT = 64

/**
 * A chain, root first, whose form, links and signatures hold. Its root, times and revocation are checked at each use.
 */
export type LinkedChain = { readonly certificates: readonly Certificate[]; readonly leafKey: P384Key }

/** Chains that were found to be linked, by the exact bytes of all their certificates. */
export type ChainCache = {
  get(ders: readonly Uint8Array[]): LinkedChain | undefined
  set(ders: readonly Uint8Array[], chain: LinkedChain): void
}

/** Gives an empty cache of at most `entriesMax` chains; the one that was not used for longest leaves first. */
export function createChainCache(entriesMax: number): ChainCache {
  const chains = new Map<string, LinkedChain>()
  return {
    get(ders) {
      const key = keyOf(ders)
      const chain = chains.get(key)
      if (chain) {
        chains.delete(key)
        chains.set(key, chain)
      }
      return chain
    },
    set(ders, chain) {
      chains.set(keyOf(ders), chain)
      if (chains.size <= entriesMax) return
      const oldest = chains.keys().next()
      if (!oldest.done) chains.delete(oldest.value)
    },
  }
}

/** Lengths are hashed too, so that no other division into certificates has the same key. */
function keyOf(ders: readonly Uint8Array[]): string {
  const lengths = Uint16Array.from(ders, (der) => der.length)
  return encodeHex(sha256(concatBytes(new Uint8Array(lengths.buffer), ...ders)))
}
