import type { z } from 'zod'
import { isSourceUrl, SOURCE_URL_LENGTH_MAX } from '#attestation/evidence/bundle-source.ts'
import { form, integer, listField, oneOf, secret, url } from '../runtime/fields.ts'
import type { Environment } from '../runtime/read-settings.ts'

const MINUTE_MS = 60_000

/** The limit of OpenAI's models. */
const INPUT_TOKENS_DEFAULT = 8_192

export const SEARCH_PROVIDERS = ['searxng', 'brave', 'tavily', 'serpapi'] as const

export type SearchProviderName = (typeof SEARCH_PROVIDERS)[number]

/** Null: only the operator can know the address. */
const SEARCH_URLS: Readonly<Record<SearchProviderName, string | null>> = {
  searxng: null,
  brave: 'https://api.search.brave.com/res/v1',
  tavily: 'https://api.tavily.com',
  serpapi: 'https://serpapi.com',
}

/** Variables of the services that the gateway calls in addition to the enclave's providers. */
export const UPSTREAM_FIELDS = {
  /**
   * Base address of an API that makes embeddings in OpenAI's form, such as
   * `https://api.openai.com/v1` (OpenAI's clients take the same address). Default: no service; in
   * development, the demo provider. Needs EMBEDDINGS_MODELS.
   */
  EMBEDDINGS_URL: baseUrl().optional(),
  /** Bearer token for EMBEDDINGS_URL. Default: no token is sent. */
  EMBEDDINGS_API_KEY: secret.optional(),
  /**
   * Models at EMBEDDINGS_URL, comma-separated; `id=TOKENS` says how many tokens an input may have
   * (default 8192, as at OpenAI): `text-embedding-3-small,bge-m3=4096`. Other models are answered
   * with 404.
   */
  EMBEDDINGS_MODELS: listField({ itemsMax: 1_000, lengthMax: 512 }).optional(),
  /**
   * Maximum number of inputs in one request to EMBEDDINGS_URL. Default 128: few servers accept more
   * than 2048, and small servers accept far fewer.
   */
  EMBEDDINGS_BATCH_MAX: integer({ min: 1, max: 2_048 }).default(128),
  /** Time for one request to EMBEDDINGS_URL, milliseconds. Default 60000. */
  EMBEDDINGS_TIMEOUT_MS: integer({ min: 100, max: 60 * MINUTE_MS }).default(MINUTE_MS),

  /**
   * Provider that `POST /v1/tool/search` asks: searxng, brave, tavily or serpapi. Default: no
   * provider, and the endpoint answers 503.
   */
  SEARCH_PROVIDER: oneOf(SEARCH_PROVIDERS).optional(),
  /**
   * Base address of the search provider. Default: the provider's own; SearXNG needs this setting:
   * `http://searxng:8080`.
   */
  SEARCH_URL: baseUrl().optional(),
  /** Key of the search provider. All providers except SearXNG need a key. */
  SEARCH_API_KEY: secret.optional(),
  /** Time for one search, milliseconds. Default 10000. */
  SEARCH_TIMEOUT_MS: integer({ min: 100, max: 5 * MINUTE_MS }).default(10_000),

  /**
   * Base address of an API that makes images in OpenAI's form. Default: no service; in development,
   * the demo provider.
   */
  IMAGES_URL: baseUrl().optional(),
  /** Bearer token for IMAGES_URL. Default: no token is sent. */
  IMAGES_API_KEY: secret.optional(),
  /**
   * Models at IMAGES_URL, comma-separated. For other models, nodes are asked; if no node has the
   * model, the answer is 404.
   */
  IMAGES_MODELS: listField({ itemsMax: 1_000, lengthMax: 512 }).optional(),
  /**
   * Time for one request to IMAGES_URL, milliseconds. Default 180000: ten large images take
   * minutes.
   */
  IMAGES_TIMEOUT_MS: integer({ min: 100, max: 60 * MINUTE_MS }).default(3 * MINUTE_MS),
  /** How long an image can be fetched from its address, seconds. Default 3600, as at OpenAI. */
  IMAGE_TTL_SECONDS: integer({ min: 1, max: 30 * 24 * 3600 }).default(3600),
  /**
   * Maximum number of bytes of all images that are kept in DATA_DIR/images; with
   * IMAGE_STORE_S3_URL, of all images that this process has put there and that have not expired.
   * Default 2147483648 (2 GiB).
   */
  IMAGE_STORE_BYTES_MAX: integer({ min: 1024 * 1024, max: 2 ** 49 }).default(2 * 1024 ** 3),
  /**
   * Bucket of an S3-compatible store for images, addressed by path, with or without a prefix:
   * `https://s3.eu-central-1.amazonaws.com/my-bucket/affidavit`. Several gateways need a common
   * bucket, so that each finds the images of the others. The bucket's key must be allowed to put,
   * get, delete and list there; the gateways remove expired images. Default: the folder
   * DATA_DIR/images. Needs both variables of its key.
   */
  IMAGE_STORE_S3_URL: bucketUrl().optional(),
  /** Region with which requests to the bucket are signed. Default us-east-1. */
  IMAGE_STORE_S3_REGION: form(/^[a-z0-9-]{1,64}$/, 'a region such as eu-central-1').default(
    'us-east-1',
  ),
  /** Id of the bucket's key. */
  IMAGE_STORE_S3_ACCESS_KEY_ID: secret.optional(),
  /** Secret of the bucket's key. */
  IMAGE_STORE_S3_SECRET_ACCESS_KEY: secret.optional(),
  /**
   * Origin under which callers reach this service, `https://api.example.com`. The addresses of
   * images use it. With OPERATOR_NAME or RELEASES_URL, evidence also names it, as a hint at
   * their source; no check uses this hint. Default: an image's address has the origin that the
   * caller called, with http, so set this variable behind a proxy that ends TLS. Bundles then name
   * no origin.
   */
  PUBLIC_URL: baseUrl()
    .refine((text) => !URL.canParse(text) || isSourceUrl(text), {
      error: `expected an ASCII URL of at most ${SOURCE_URL_LENGTH_MAX} characters`,
    })
    .optional(),
}

type Settings = z.output<z.ZodObject<typeof UPSTREAM_FIELDS>>

export type OpenAiApi = {
  readonly url: string
  readonly apiKey: string | null
  readonly timeoutMs: number
}

export type EmbeddingModel = { readonly id: string; readonly inputTokensMax: number }

export type EmbeddingsConfig = OpenAiApi & {
  readonly models: readonly EmbeddingModel[]
  readonly batchInputsMax: number
}

export type SearchConfig = {
  readonly provider: SearchProviderName
  readonly url: string
  /** Null for SearXNG. */
  readonly apiKey: string | null
  readonly timeoutMs: number
}

/** Null: the service is not configured. */
export type UpstreamConfig = {
  readonly embeddings: EmbeddingsConfig | null
  readonly search: SearchConfig | null
  readonly images: ImagesConfig | null
  readonly imageStore: ImageStoreConfig
  /** Without a slash at its end. Null: the origin is unknown. */
  readonly publicOrigin: string | null
}

/** URLs contain the bucket in their path. */
export type BucketConfig = {
  readonly url: string
  readonly region: string
  readonly accessKeyId: string
  readonly secretAccessKey: string
}

export type ImageStoreConfig = {
  readonly ttlMs: number
  readonly bytesMax: number
  /** Null: images are stored in a folder on the gateway's machine. */
  readonly bucket: BucketConfig | null
}

export type ImagesConfig = OpenAiApi & { readonly models: readonly string[] }

/** Returns the faults that appear only when several variables are checked together. */
export function upstreamFaults(given: Environment): readonly string[] {
  return [
    ...together(given, 'EMBEDDINGS_MODELS', 'EMBEDDINGS_URL'),
    ...together(given, 'EMBEDDINGS_URL', 'EMBEDDINGS_MODELS'),
    ...together(given, 'EMBEDDINGS_API_KEY', 'EMBEDDINGS_URL'),
    ...modelFaults(given.EMBEDDINGS_MODELS ?? ''),
    ...searchFaults(given),
    ...together(given, 'IMAGES_MODELS', 'IMAGES_URL'),
    ...together(given, 'IMAGES_URL', 'IMAGES_MODELS'),
    ...together(given, 'IMAGES_API_KEY', 'IMAGES_URL'),
    ...bucketFaults(given),
  ]
}

/** The variables must have no faults. */
export function upstreamOf(settings: Settings): UpstreamConfig {
  const { EMBEDDINGS_URL: embeddingsUrl } = settings
  return {
    embeddings:
      embeddingsUrl === undefined
        ? null
        : {
            url: embeddingsUrl,
            apiKey: settings.EMBEDDINGS_API_KEY ?? null,
            models: (settings.EMBEDDINGS_MODELS ?? []).map(embeddingModelOf),
            batchInputsMax: settings.EMBEDDINGS_BATCH_MAX,
            timeoutMs: settings.EMBEDDINGS_TIMEOUT_MS,
          },
    search: searchOf(settings),
    images: imagesOf(settings),
    imageStore: {
      ttlMs: 1000 * settings.IMAGE_TTL_SECONDS,
      bytesMax: settings.IMAGE_STORE_BYTES_MAX,
      bucket: bucketOf(settings),
    },
    publicOrigin: settings.PUBLIC_URL?.replace(/\/+$/, '') ?? null,
  }
}

/**
 * Refuses credentials in the URL, because they have separate variables. Refuses a query, because
 * paths are added to the URL.
 */
function baseUrl() {
  return url(['http', 'https']).refine(
    (text) => {
      if (!URL.canParse(text)) return true
      const { username, password, search, hash } = new URL(text)
      return username + password + search + hash === ''
    },
    { error: 'expected a URL without user, password, query and fragment' },
  )
}

/** `https://host/bucket/prefix`, with only characters that URL encoding does not change. */
function bucketUrl() {
  return baseUrl().refine(
    (text) =>
      !URL.canParse(text) ||
      /^\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](\/[\w.-]{1,100}){0,8}\/?$/.test(new URL(text).pathname),
    { error: 'expected the bucket, and a prefix if there is one, as the path of the URL' },
  )
}

/**
 * In production, a bucket on another machine needs TLS. Otherwise images would be sent unencrypted.
 */
function bucketFaults(given: Environment): readonly string[] {
  const [url, ...key] = [
    'IMAGE_STORE_S3_URL',
    'IMAGE_STORE_S3_ACCESS_KEY_ID',
    'IMAGE_STORE_S3_SECRET_ACCESS_KEY',
  ] as const
  const text = given[url] ?? ''
  const isOpen = URL.canParse(text) && new URL(text).protocol === 'http:' && !isLoopback(text)
  return [
    ...key.flatMap((name) => [...together(given, url, name), ...together(given, name, url)]),
    ...together(given, 'IMAGE_STORE_S3_REGION', url),
    ...(given.NODE_ENV === 'production' && isOpen
      ? [`${url}: expected https in production, unless the store is on this machine`]
      : []),
  ]
}

function isLoopback(text: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(new URL(text).hostname)
}

function bucketOf(settings: Settings): BucketConfig | null {
  const {
    IMAGE_STORE_S3_URL: url,
    IMAGE_STORE_S3_ACCESS_KEY_ID: accessKeyId,
    IMAGE_STORE_S3_SECRET_ACCESS_KEY: secretAccessKey,
    IMAGE_STORE_S3_REGION: region,
  } = settings
  if (url === undefined || accessKeyId === undefined || secretAccessKey === undefined) return null
  return { url, region, accessKeyId, secretAccessKey }
}

function together(given: Environment, name: string, needed: string): readonly string[] {
  return given[name] === undefined || given[needed] !== undefined
    ? []
    : [`${needed}: expected together with ${name}`]
}

function searchFaults(given: Environment): readonly string[] {
  const { SEARCH_PROVIDER: provider } = given
  if (provider === undefined)
    return ['SEARCH_URL', 'SEARCH_API_KEY'].flatMap((name) =>
      together(given, name, 'SEARCH_PROVIDER'),
    )
  if (provider !== 'searxng') return together(given, 'SEARCH_PROVIDER', 'SEARCH_API_KEY')
  const hasKey = given.SEARCH_API_KEY !== undefined
  return [
    ...together(given, 'SEARCH_PROVIDER', 'SEARCH_URL'),
    ...(hasKey ? ['SEARCH_API_KEY: unexpected with searxng, which has no keys'] : []),
  ]
}

function searchOf(settings: Settings): SearchConfig | null {
  const {
    SEARCH_PROVIDER: provider,
    SEARCH_API_KEY: apiKey,
    SEARCH_TIMEOUT_MS: timeoutMs,
  } = settings
  if (provider === undefined) return null
  const url = settings.SEARCH_URL ?? SEARCH_URLS[provider]
  return url === null ? null : { provider, url, apiKey: apiKey ?? null, timeoutMs }
}

function imagesOf(settings: Settings): ImagesConfig | null {
  const {
    IMAGES_URL: url,
    IMAGES_API_KEY: apiKey,
    IMAGES_MODELS: models,
    IMAGES_TIMEOUT_MS: timeoutMs,
  } = settings
  return url === undefined ? null : { url, apiKey: apiKey ?? null, models: models ?? [], timeoutMs }
}

/** Ids may contain colons and slashes, but no `=`. */
const MODEL_PATTERN = /^([^=\p{Cc}]+)(?:=([1-9]\d{0,6}))?$/u

function modelFaults(text: string): readonly string[] {
  const wrong = text
    .split(',')
    .find((item) => item.trim() !== '' && !MODEL_PATTERN.test(item.trim()))
  return wrong === undefined
    ? []
    : ['EMBEDDINGS_MODELS: expected ids, or id=TOKENS, with commas between them']
}

function embeddingModelOf(item: string): EmbeddingModel {
  const [, id = item, tokens] = MODEL_PATTERN.exec(item) ?? []
  return {
    id: id.trim(),
    inputTokensMax: tokens === undefined ? INPUT_TOKENS_DEFAULT : Number(tokens),
  }
}
