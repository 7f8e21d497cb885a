import { randomUUID } from 'node:crypto'

export type FormFile = {
  readonly name: string
  readonly filename: string
  readonly mediaType: string
  readonly bytes: Uint8Array
}

/** Body of a `multipart/form-data` call (RFC 7578), and its content type. Names are ours; values are anything. */
export function writeForm(
  fields: Readonly<Record<string, string>>,
  { name, filename, mediaType, bytes }: FormFile,
): { readonly contentType: string; readonly body: Uint8Array } {
  // Nobody who wrote a value can have known it.
  const boundary = `form-${randomUUID()}`
  const texts = Object.entries(fields).map(
    ([field, value]) =>
      `--${boundary}\r\ncontent-disposition: form-data; name="${field}"\r\n\r\n${value}\r\n`,
  )
  const head = `--${boundary}\r\ncontent-disposition: form-data; name="${name}"; filename="${filename}"\r\ncontent-type: ${mediaType}\r\n\r\n`
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: Buffer.concat([Buffer.from(texts.join('') + head), bytes, Buffer.from(`\r\n--${boundary}--\r\n`)]),
  }
}
