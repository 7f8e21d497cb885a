import { PolicyFault } from './policy-fault.ts'

/** Maximum size of a policy. Files with releases may be larger. */
export const FILE_BYTES_MAX = 1024 * 1024

/** Throws PolicyFault when the file is too large. */
export async function bytesOf(
  blob: Blob,
  bytesMax: number,
  name: string,
): Promise<Uint8Array<ArrayBuffer>> {
  if (blob.size > bytesMax)
    throw new PolicyFault(
      `${name} has ${blob.size} bytes; the limit is ${bytesMax}.`,
      'Choose another file: this file is something else.',
    )
  return new Uint8Array(await blob.arrayBuffer())
}
