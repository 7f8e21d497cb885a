import { promisify } from 'node:util'
import { brotliDecompress, gunzip, inflate } from 'node:zlib'

/** Rejects with the code ERR_BUFFER_TOO_LARGE when more than `maxOutputLength` bytes come out. */
export type UndoCoding = (
  bytes: Buffer,
  options: { readonly maxOutputLength: number },
) => Promise<Buffer<ArrayBuffer>>

/** By the name of the content coding, in lower case. */
export const CONTENT_CODINGS: ReadonlyMap<string, UndoCoding> = new Map([
  ['gzip', promisify<Buffer, object, Buffer<ArrayBuffer>>(gunzip)],
  ['deflate', promisify<Buffer, object, Buffer<ArrayBuffer>>(inflate)],
  ['br', promisify<Buffer, object, Buffer<ArrayBuffer>>(brotliDecompress)],
])
