import { createHash, createHmac } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * A small S3 server after AWS's API reference: Put, Get, Head and DeleteObject and ListObjectsV2,
 * addressed by path, with answers in its XML. It computes Signature Version 4 itself, from the
 * request as it came, and refuses every other request.
 */
export type S3Server = {
  readonly origin: string
  /** Objects by `bucket/key`. */
  readonly objects: Map<string, { bytes: Buffer; readonly type: string }>
  /** Every request that came, as `PUT /bucket/key`. */
  readonly requests: string[]
  /** Answers in place of the server when it gives true. */
  script: ((request: IncomingMessage, response: ServerResponse) => boolean) | null
  stop(): Promise<void>
}

export const S3_KEY = {
  region: 'eu-test-1',
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
} as const

/** Names in one page of a listing; AWS has 1,000. */
const PAGE_LENGTH = 3
const SKEW_MAX_MS = 15 * 60_000

export async function startS3Server(): Promise<S3Server> {
  const objects: S3Server['objects'] = new Map()
  const requests: string[] = []
  const server = createServer(async (request, response) => {
    requests.push(`${request.method} ${request.url}`)
    if (own.script?.(request, response)) return
    const body = Buffer.concat(await request.toArray())
    const refused = findForgery(request, body)
    if (refused !== null) refuse(response, 403, refused)
    else answer(objects, request, { response, body })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const own: S3Server = {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    objects,
    requests,
    script: null,
    async stop() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return own
}

/** Answers with an error in S3's form. */
export function refuse(response: ServerResponse, status: number, code: string): void {
  response
    .writeHead(status, { 'content-type': 'application/xml' })
    .end(
      `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>No</Message></Error>`,
    )
}

function answer(
  objects: S3Server['objects'],
  { method, url = '', headers }: IncomingMessage,
  { response, body }: { readonly response: ServerResponse; readonly body: Buffer },
): void {
  const { pathname, searchParams } = new URL(url, 'http://s3')
  const name = decodeURIComponent(pathname.slice(1))
  const isBucket = !name.includes('/')
  const object = objects.get(name)
  if (isBucket && method === 'GET' && searchParams.get('list-type') === '2')
    list(objects, response, { bucket: name, query: searchParams })
  else if (isBucket) refuse(response, 405, 'MethodNotAllowed')
  else if (method === 'PUT') {
    objects.set(name, { bytes: body, type: headers['content-type'] ?? 'binary/octet-stream' })
    response.writeHead(200, { etag: `"${digest('md5', body)}"` }).end()
  } else if (method === 'DELETE') {
    objects.delete(name)
    response.writeHead(204).end()
  } else if (object === undefined) refuse(response, 404, 'NoSuchKey')
  else
    response
      .writeHead(200, { 'content-type': object.type, 'content-length': object.bytes.length })
      .end(method === 'HEAD' ? undefined : object.bytes)
}

/** ListObjectsV2: names in the order of their bytes; names with the delimiter are grouped. */
function list(
  objects: S3Server['objects'],
  response: ServerResponse,
  { bucket, query }: { readonly bucket: string; readonly query: URLSearchParams },
): void {
  const [prefix, delimiter, after] = ['prefix', 'delimiter', 'start-after'].map(
    (name) => query.get(name) ?? '',
  ) as [string, string, string]
  const keys = [...objects.keys()]
    .filter((name) => name.startsWith(`${bucket}/`))
    .map((name) => name.slice(bucket.length + 1))
    .filter((key) => key.startsWith(prefix) && key > after)
    .toSorted()
  const rolledUp = (key: string) => {
    const at = delimiter === '' ? -1 : key.indexOf(delimiter, prefix.length)
    return at < 0 ? null : key.slice(0, at + delimiter.length)
  }
  const entries = [...new Set(keys.map((key) => rolledUp(key) ?? key))]
  const page = entries.slice(0, PAGE_LENGTH)
  const contents = page.map((entry) =>
    keys.includes(entry)
      ? `<Contents><Key>${escapeXml(entry)}</Key><Size>${objects.get(`${bucket}/${entry}`)?.bytes.length}</Size></Contents>`
      : `<CommonPrefixes><Prefix>${escapeXml(entry)}</Prefix></CommonPrefixes>`,
  )
  response
    .writeHead(200, { 'content-type': 'application/xml' })
    .end(
      `<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` +
        `<Name>${bucket}</Name><Prefix>${escapeXml(prefix)}</Prefix><KeyCount>${page.length}</KeyCount><MaxKeys>${PAGE_LENGTH}</MaxKeys>` +
        `<IsTruncated>${entries.length > page.length}</IsTruncated>${contents.join('')}</ListBucketResult>`,
    )
}

function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

/**
 * The code of the refusal when the request's signature does not fit the key; null for a good one.
 */
function findForgery(request: IncomingMessage, body: Buffer): string | null {
  const { method = '', url = '', headers } = request
  const [, id, date = '', region = '', names = '', signature] =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/.exec(
      headers.authorization ?? '',
    ) ?? []
  if (signature === undefined) return 'AccessDenied'
  if (id !== S3_KEY.accessKeyId) return 'InvalidAccessKeyId'
  if (region !== S3_KEY.region) return 'AuthorizationHeaderMalformed'
  const time = String(headers['x-amz-date'])
  const at = Date.parse(time.replace(/^(....)(..)(..T..)(..)(..Z)$/, '$1-$2-$3:$4:$5'))
  if (!(Math.abs(Date.now() - at) < SKEW_MAX_MS) || !time.startsWith(date))
    return 'RequestTimeTooSkewed'
  if (
    !['host', 'x-amz-content-sha256', 'x-amz-date'].every((name) => names.split(';').includes(name))
  )
    return 'AccessDenied'
  const hashed = String(headers['x-amz-content-sha256'])
  if (hashed !== digest('sha256', body)) return 'XAmzContentSHA256Mismatch'
  const signed = { method, url, headers, names: names.split(';') }
  const expected = signatureOf(signed, { region, secretAccessKey: S3_KEY.secretAccessKey })
  return expected === signature ? null : 'SignatureDoesNotMatch'
}

type SignedRequest = Pick<IncomingMessage, 'headers'> & {
  readonly method: string
  readonly url: string
  /** Names of the signed headers, in their order. */
  readonly names: readonly string[]
}

/** Signature Version 4 of a request, in hex (docs.aws.amazon.com/AmazonS3, sig-v4-header-based-auth). */
export function signatureOf(
  { method, url, headers, names }: SignedRequest,
  { region, secretAccessKey }: { readonly region: string; readonly secretAccessKey: string },
): string {
  const [path = '', search = ''] = url.split('?')
  const canonical = [
    method,
    path,
    search.split('&').toSorted().join('&'),
    ...names.map((name) => `${name}:${String(headers[name]).trim().replace(/ +/g, ' ')}`),
    '',
    names.join(';'),
    String(headers['x-amz-content-sha256']),
  ].join('\n')
  const time = String(headers['x-amz-date'])
  const scope = [time.slice(0, 8), region, 's3', 'aws4_request']
  const toSign = ['AWS4-HMAC-SHA256', time, scope.join('/'), digest('sha256', canonical)].join('\n')
  const key = scope.reduce<string | Buffer>(
    (secret, part) => createHmac('sha256', secret).update(part).digest(),
    `AWS4${secretAccessKey}`,
  )
  return createHmac('sha256', key).update(toSign).digest('hex')
}

function digest(algorithm: string, bytes: Buffer | string): string {
  return createHash(algorithm).update(bytes).digest('hex')
}
