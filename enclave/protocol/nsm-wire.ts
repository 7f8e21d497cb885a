/*
 * The messages between an enclave and its security module: one CBOR request, then its CBOR answer.
 * A Nitro enclave sends messages through its kernel (/dev/nsm). In development, messages go through
 * a Unix socket, each with its length in front (encodeFrame).
 */

/** The values for an attestation document. Null leaves a value out. */
export type AttestationInput = {
  /** 1 to ATTESTATION_FIELD_BYTES_MAX bytes. */
  readonly publicKey: Uint8Array | null
  /** 0 to ATTESTATION_FIELD_BYTES_MAX bytes. An empty value differs from null. */
  readonly userData: Uint8Array | null
  readonly nonce: Uint8Array | null
}

/**
 * Requests of an enclave to its module (aws-nitro-enclaves-nsm-api, Request). `kind` is the name in
 * the message.
 */
export type NsmRequest =
  | { readonly kind: 'GetRandom' }
  | ({ readonly kind: 'Attestation' } & AttestationInput)

/** Answers of a module (aws-nitro-enclaves-nsm-api, Response). */
export type NsmResponse =
  | { readonly kind: 'GetRandom'; readonly random: Uint8Array }
  | { readonly kind: 'Attestation'; readonly document: Uint8Array }
  | { readonly kind: 'Error'; readonly code: NsmWireError }

/** The driver's maximum sizes of a request and a response (linux/drivers/misc/nsm.c). */
export const NSM_REQUEST_BYTES_MAX = 0x1000
export const NSM_RESPONSE_BYTES_MAX = 0x3000

/**
 * Maximum length of public_key, user_data and nonce in real documents, bytes. AWS documents both
 * 512 and 1024 as limits.
 */
export const ATTESTATION_FIELD_BYTES_MAX = 1024

/** The module's error names, as in its messages (aws-nitro-enclaves-nsm-api, ErrorCode). */
export const NSM_WIRE_ERRORS = [
  'Success',
  'InvalidArgument',
  'InvalidIndex',
  'InvalidResponse',
  'ReadOnlyIndex',
  'InvalidOperation',
  'BufferTooSmall',
  'InputTooLarge',
  'InternalError',
] as const

export type NsmWireError = (typeof NSM_WIRE_ERRORS)[number]

/** Encodes a message for the socket: four bytes with its length, big-endian, then the message. */
export function encodeFrame(message: Uint8Array): Uint8Array {
  const head = Buffer.alloc(FRAME_HEAD_BYTES)
  head.writeUInt32BE(message.length)
  return Buffer.concat([head, message])
}

/** Returns the messages in order. Throws RangeError for a message above `bytesMax`. */
export async function* readFrames(
  chunks: AsyncIterable<Uint8Array>,
  bytesMax: number,
): AsyncGenerator<Uint8Array, void, void> {
  let received = Buffer.alloc(0)
  for await (const chunk of chunks) {
    received = Buffer.concat([received, chunk])
    while (received.length >= FRAME_HEAD_BYTES) {
      const end = FRAME_HEAD_BYTES + received.readUInt32BE()
      if (end > FRAME_HEAD_BYTES + bytesMax)
        throw new RangeError(`a message of more than ${bytesMax} bytes`)
      if (received.length < end) break
      yield new Uint8Array(received.subarray(FRAME_HEAD_BYTES, end))
      received = received.subarray(end)
    }
  }
}

const FRAME_HEAD_BYTES = 4
