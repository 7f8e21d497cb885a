import { expect, it } from 'vitest'
import { ApiError, type ErrorCode } from '#src/api/errors.ts'
import type { GenerationRequest } from '#src/images/image-request.ts'
import type { ImageCall, ImageSource } from '#src/images/image-source.ts'
import { ImageStoreError, StoreFullError } from '#src/images/image-store.ts'
import { createImages } from '#src/images/images.ts'

const request: GenerationRequest = {
  model: 'm',
  prompt: 'a fox',
  n: 1,
  user: null,
  quality: null,
  style: null,
  size: '256x256',
  isSizeAsked: true,
  responseFormat: 'b64_json',
}
const call: ImageCall = {
  job: { kind: 'generation', request },
  accountId: 'a',
  signal: new AbortController().signal,
  reserve: () => {},
}

/** A source that gives its name for an image, or fails. */
function source(
  name: string,
  more: Partial<ImageSource> & { readonly fails?: ErrorCode } = {},
): ImageSource {
  const { fails, ...rest } = more
  return {
    models: () => ['m'],
    serves: () => true,
    knows: () => true,
    async make() {
      if (fails !== undefined) throw new ApiError(fails, 'no')
      return [{ bytes: Buffer.from(name), type: 'png', revisedPrompt: null }]
    },
    ...rest,
  }
}

/** Who answered, or the code of the error. */
async function whoAnswers(...sources: readonly ImageSource[]): Promise<string> {
  const store = { put: async () => '', find: async () => null }
  const images = createImages({ sources, store, now: Date.now })
  return images
    .make(call, () => '')
    .then(
      (text) => Buffer.from(JSON.parse(text).data[0].b64_json, 'base64').toString(),
      (error: unknown) => (error instanceof ApiError ? error.code : String(error)),
    )
}

it('a call for images fails when the store is full, or cannot be used', async () => {
  const kept = {
    ...call,
    job: { kind: 'generation', request: { ...request, responseFormat: 'url' } },
  }
  for (const [fault, code] of [
    [new StoreFullError(), 'image_store_full'],
    [new ImageStoreError('AccessDenied', 'no'), 'not_ready'],
  ] as const) {
    const store = { put: () => Promise.reject(fault), find: async () => null }
    const images = createImages({ sources: [source('nodes')], store, now: Date.now })
    await expect(images.make(kept as ImageCall, () => '')).rejects.toMatchObject({ code })
  }
})

const away = { serves: () => false }
const unknown = { serves: () => false, knows: () => false }

it('a call for images goes to the first source that serves it now', async () => {
  expect(await whoAnswers(source('nodes'), source('endpoint'))).toBe('nodes')
  expect(await whoAnswers(source('nodes', away), source('endpoint'))).toBe('endpoint')
  expect(await whoAnswers(source('nodes', unknown), source('endpoint'))).toBe('endpoint')
})

it.each(['no_available_inference_nodes', 'node_error', 'node_timeout'] as const)(
  'a call for images goes to the next when the first fails with %s',
  async (code) => {
    expect(await whoAnswers(source('nodes', { fails: code }), source('endpoint'))).toBe('endpoint')
    expect(await whoAnswers(source('nodes', { fails: code }), source('endpoint', unknown))).toBe(
      code,
    )
  },
)

it.each(['overloaded', 'provider_refused', 'payload_too_large'] as const)(
  'a call for images ends with the first source’s %s',
  async (code) => {
    expect(await whoAnswers(source('nodes', { fails: code }), source('endpoint'))).toBe(code)
  },
)

it('a call for images is refused by who knows the model, when nobody serves it now', async () => {
  const fails = 'no_available_inference_nodes'
  expect(await whoAnswers(source('nodes', { ...away, fails }), source('endpoint', unknown))).toBe(
    fails,
  )
})
