import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { type Affidavit, startAffidavit } from '../affidavit.ts'
import { refuseWith, startScriptedEndpoint } from '../scripted-endpoint.ts'
import { nextTurn, type Shape } from './model-turn.ts'
import { openRouterChat, sglangChat, vllmChat, xaiChat } from './shapes/chat.ts'
import {
  anthropicMessages,
  openRouterMessages,
  sglangMessages,
  vllmMessages,
} from './shapes/messages.ts'
import {
  lmStudioResponses,
  openRouterResponses,
  vllmGptOssResponses,
  vllmResponses,
  xaiResponses,
} from './shapes/responses.ts'

/** How each provider streams, by the dialects of which a stream of it is known. */
export const PROVIDER_SHAPES: Readonly<
  Record<string, Readonly<Partial<Record<DialectName, Shape>>>>
> = {
  xai: { chat: xaiChat, responses: xaiResponses },
  openrouter: {
    chat: openRouterChat,
    responses: openRouterResponses,
    messages: openRouterMessages,
  },
  anthropic: { messages: anthropicMessages },
  lmstudio: { responses: lmStudioResponses },
  vllm: { chat: vllmChat, responses: vllmResponses, messages: vllmMessages },
  'vllm-gpt-oss': { responses: vllmGptOssResponses },
  sglang: { chat: sglangChat, messages: sglangMessages },
}

const PATHS: Readonly<Record<string, DialectName>> = {
  '/v1/chat/completions': 'chat',
  '/v1/responses': 'responses',
  '/v1/messages': 'messages',
}

/** A service whose providers stream as those of PROVIDER_SHAPES do. Models: `NAME/task`. */
export async function startScriptedProviders(): Promise<Affidavit> {
  const provider = await startScriptedEndpoint((request, response) => {
    const dialect = PATHS[request.url]
    const body = request.json as JsonObject
    const model = String(body.model)
    const shape = dialect && PROVIDER_SHAPES[model.split('/')[0] ?? '']?.[dialect]
    if (dialect === undefined || shape === undefined)
      return refuseWith(404, { error: { message: `no ${request.url}` } })(request, response)
    response.setHeader('content-type', 'text/event-stream')
    response.end(shape(nextTurn(dialect, body), { model, tools: body.tools ?? [] }))
    return undefined
  })
  const entries = Object.keys(PROVIDER_SHAPES).map((name) => ({
    name,
    origin: provider.origin,
    path: '/v1/chat/completions',
    models: [`${name}/*`],
    endpoints: { responses: { path: '/v1/responses' }, messages: { path: '/v1/messages' } },
  }))
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-providers-'))
  const file = join(folder, 'providers.json')
  await writeFile(file, JSON.stringify(entries))
  const service = await startAffidavit({ logLevel: 'warn', variables: { PROVIDERS_FILE: file } })
  return {
    ...service,
    async stop() {
      const code = await service.stop()
      await provider.stop()
      await rm(folder, { recursive: true })
      return code
    },
  }
}
