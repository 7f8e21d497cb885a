import { DerError, type DerNode, decodeDer } from '../nitro/der.ts'

/** Null for bytes that are not DER. */
export function tryDecodeDer(bytes: Uint8Array<ArrayBuffer>): DerNode | null {
  try {
    return decodeDer(bytes)
  } catch (fault) {
    if (fault instanceof DerError) return null
    throw fault
  }
}
