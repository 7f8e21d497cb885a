import { expect, it } from 'vitest'
import { readGatewayConfig } from '#src/config.ts'
import { ConfigurationError } from '#src/runtime/read-settings.ts'

const upstreamOf = (environment: Record<string, string>) => readGatewayConfig(environment).upstream

const BUCKET = {
  IMAGE_STORE_S3_URL: 'https://s3.example.com/bucket/prefix',
  IMAGE_STORE_S3_ACCESS_KEY_ID: 'AKID',
  IMAGE_STORE_S3_SECRET_ACCESS_KEY: 's/e+cret',
}

function faultsOf(environment: Record<string, string>): readonly string[] {
  try {
    readGatewayConfig(environment)
  } catch (fault) {
    if (fault instanceof ConfigurationError) return fault.faults
    throw fault
  }
  return []
}

const EMBEDDINGS = {
  EMBEDDINGS_URL: 'https://api.example.com/v1',
  EMBEDDINGS_MODELS: 'small, a/b:latest=512',
}

it('the services that the gateway calls are none when nothing is set', () => {
  expect(upstreamOf({})).toMatchObject({ embeddings: null, search: null })
})

it('the settings make embeddings, with the limits of each model', () => {
  expect(
    upstreamOf({ ...EMBEDDINGS, EMBEDDINGS_API_KEY: 'k', EMBEDDINGS_BATCH_MAX: '7' }).embeddings,
  ).toEqual({
    url: 'https://api.example.com/v1',
    apiKey: 'k',
    models: [
      { id: 'small', inputTokensMax: 8192 },
      { id: 'a/b:latest', inputTokensMax: 512 },
    ],
    batchInputsMax: 7,
    timeoutMs: 60_000,
  })
})

it.each(['a=0', 'a=x', '=5', 'a=1=2', 'a=12345678'])(
  'the setting of embeddings refuses %s as models',
  (models) => {
    expect(faultsOf({ ...EMBEDDINGS, EMBEDDINGS_MODELS: models })).toEqual([
      expect.stringContaining('EMBEDDINGS_MODELS: expected ids'),
    ])
  },
)

it.each([
  'ftp://a',
  'https://user@a/',
  'https://user:hush@a/',
  'https://a/?hush=1',
  'https://a/#hush',
  'a',
])('the setting of embeddings refuses %s as an address, and does not repeat it', (url) => {
  const faults = faultsOf({ ...EMBEDDINGS, EMBEDDINGS_URL: url })
  expect(faults).toEqual([expect.stringContaining('EMBEDDINGS_URL: expected')])
  expect(faults.join()).not.toContain('hush')
})

it('the settings make searches where the provider is, or where the operator says', () => {
  expect(upstreamOf({ SEARCH_PROVIDER: 'brave', SEARCH_API_KEY: 'k' }).search).toEqual({
    provider: 'brave',
    url: 'https://api.search.brave.com/res/v1',
    apiKey: 'k',
    timeoutMs: 10_000,
  })
  expect(
    upstreamOf({ SEARCH_PROVIDER: 'searxng', SEARCH_URL: 'http://searxng:8080' }).search,
  ).toMatchObject({
    url: 'http://searxng:8080',
    apiKey: null,
  })
})

it.each([
  [{ EMBEDDINGS_URL: 'http://a/v1' }, 'EMBEDDINGS_MODELS: '],
  [{ EMBEDDINGS_MODELS: 'a' }, 'EMBEDDINGS_URL: '],
  [{ EMBEDDINGS_API_KEY: 'a' }, 'EMBEDDINGS_URL: '],
  [{ SEARCH_URL: 'http://a' }, 'SEARCH_PROVIDER: '],
  [{ SEARCH_API_KEY: 'a' }, 'SEARCH_PROVIDER: '],
  [{ SEARCH_PROVIDER: 'tavily' }, 'SEARCH_API_KEY: '],
  [{ SEARCH_PROVIDER: 'searxng' }, 'SEARCH_URL: '],
  [
    { SEARCH_PROVIDER: 'searxng', SEARCH_URL: 'http://a', SEARCH_API_KEY: 'k' },
    'SEARCH_API_KEY: unexpected',
  ],
  [
    { SEARCH_PROVIDER: 'google' },
    'SEARCH_PROVIDER: expected one of searxng, brave, tavily, serpapi',
  ],
])('the settings refuse %j alone', (given, fault) => {
  expect(faultsOf({ ...given } as Record<string, string>)).toContainEqual(
    expect.stringContaining(fault),
  )
})

it('the settings name a bucket for images with the key for it', () => {
  expect(upstreamOf({}).imageStore.bucket).toBeNull()
  expect(upstreamOf({ ...BUCKET, IMAGE_STORE_S3_REGION: 'eu-central-1' })).toMatchObject({
    imageStore: {
      bucket: {
        url: BUCKET.IMAGE_STORE_S3_URL,
        region: 'eu-central-1',
        accessKeyId: 'AKID',
        secretAccessKey: 's/e+cret',
      },
    },
  })
  expect(upstreamOf(BUCKET).imageStore.bucket?.region).toBe('us-east-1')
})

it.each([
  [{ IMAGE_STORE_S3_URL: 'https://s3.example.com' }, 'IMAGE_STORE_S3_URL: expected the bucket'],
  [{ IMAGE_STORE_S3_URL: 'https://s3.example.com/a b/c' }, 'IMAGE_STORE_S3_URL: expected'],
  [{ IMAGE_STORE_S3_URL: 'https://s3.example.com/UPPER' }, 'IMAGE_STORE_S3_URL: expected'],
  [{ IMAGE_STORE_S3_URL: 'https://u:p@s3.example.com/bucket' }, 'IMAGE_STORE_S3_URL: expected'],
  [{ IMAGE_STORE_S3_URL: 's3://bucket/prefix' }, 'IMAGE_STORE_S3_URL: expected a URL'],
  [{ IMAGE_STORE_S3_ACCESS_KEY_ID: '' }, 'IMAGE_STORE_S3_ACCESS_KEY_ID: expected together'],
  [{ IMAGE_STORE_S3_SECRET_ACCESS_KEY: '' }, 'IMAGE_STORE_S3_SECRET_ACCESS_KEY: expected'],
  [{ IMAGE_STORE_S3_URL: '' }, 'IMAGE_STORE_S3_URL: expected together'],
  [{ IMAGE_STORE_S3_REGION: 'nowhere at all' }, 'IMAGE_STORE_S3_REGION: expected a region'],
])('the settings refuse a bucket with %j', (changes, fault) => {
  const faults = faultsOf({ ...BUCKET, ...changes } as Record<string, string>)
  expect(faults).toContainEqual(expect.stringContaining(fault))
  expect(faults.join()).not.toContain(BUCKET.IMAGE_STORE_S3_SECRET_ACCESS_KEY)
})

it('production refuses a bucket on another machine without TLS', () => {
  const faultsAt = (url: string, NODE_ENV = 'production') =>
    faultsOf({ ...BUCKET, NODE_ENV, IMAGE_STORE_S3_URL: url }).filter((fault) =>
      fault.startsWith('IMAGE_STORE_S3_URL'),
    )
  expect(faultsAt('http://minio:9000/images')).toEqual([
    'IMAGE_STORE_S3_URL: expected https in production, unless the store is on this machine',
  ])
  expect(faultsAt('http://minio:9000/images', 'test')).toEqual([])
  for (const url of ['http://127.0.0.1:9000/images', 'https://minio:9000/images/a/b'])
    expect(faultsAt(url)).toEqual([])
})
