import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import OpenAI, { toFile } from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readImageFacts } from '#src/images/image-facts.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { childEnvironment } from '../support/child-environment.ts'
import { pngOf } from '../support/image-files.ts'
import { getJson } from '../support/register-node.ts'
import { runCli } from '../support/run-cli.ts'

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')
/** A model that the operator's endpoint has too. */
const SHARED_MODEL = 'demo/image'

let service: Affidavit
let client: OpenAI
const caller = () => ({ url: service.url, key: service.apiKey })
beforeAll(async () => {
  service = await startAffidavit({ logLevel: 'warn' })
  client = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: service.apiKey, maxRetries: 0 })
})
afterAll(() => service.stop())

async function statusOf(nodeId: string): Promise<unknown> {
  return (await getJson(caller(), `/v1/node/info?node_id=${nodeId}`)).status
}

async function servedBy(nodeId: string): Promise<number> {
  return Number((await getJson(caller(), `/v1/node/stats?node_id=${nodeId}`)).requests_served)
}

const factsOf = (base64: string | undefined) => readImageFacts(Buffer.from(base64 ?? '', 'base64'))

describe('an agent of type DIFFUSION in front of an image server', () => {
  const drawing512 = { model: SHARED_MODEL, prompt: 'a red fox', size: '512x512' as const }
  let nodeId = ''
  let agent: ChildProcess
  let written = ''
  const access = () => ({ AFFIDAVIT_URL: service.url, AFFIDAVIT_API_KEY: service.apiKey })

  afterAll(() => {
    agent?.kill('SIGKILL')
  })

  it('an agent of type DIFFUSION is started with the command line', async () => {
    nodeId = (await runCli(['node', 'create', 'a painter'], { variables: access() })).stdout.trim()
    const words = [
      'node',
      'run',
      '--type',
      'DIFFUSION',
      '--backend',
      service.providerUrl,
      '--model',
      SHARED_MODEL,
    ]
    agent = spawn(process.execPath, [MAIN, ...words], {
      env: { ...childEnvironment(), ...access(), NODE_ID: nodeId },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    agent.stderr?.on('data', (text: Buffer) => {
      written += text
    })
    await expect.poll(() => statusOf(nodeId), { timeout: 20_000 }).toBe('Running')
  })

  it('an agent makes the images that are asked for, before the endpoint that has the model too', async () => {
    const { data = [] } = await client.images.generate({
      ...drawing512,
      n: 2,
      response_format: 'b64_json',
    })
    expect(data.map(({ b64_json }) => factsOf(b64_json))).toEqual(
      Array.from({ length: 2 }, () => ({ type: 'png', width: 512, height: 512 })),
    )
    await expect.poll(() => servedBy(nodeId), { timeout: 30_000 }).toBe(1)
  })

  it('an agent of type DIFFUSION changes the image that is sent', async () => {
    const image = await toFile(pngOf(64), 'a.png', { type: 'image/png' })
    const ask = { ...drawing512, response_format: 'b64_json' as const }
    const [edited] = (await client.images.edit({ ...ask, image })).data ?? []
    const [made] = (await client.images.generate(ask)).data ?? []
    expect(factsOf(edited?.b64_json)?.width).toBe(512)
    expect(edited?.b64_json).not.toBe(made?.b64_json)
    await expect.poll(() => servedBy(nodeId), { timeout: 30_000 }).toBe(3)
  })

  it('an agent leaves too large images to the endpoint, and everything when it is stopped', async () => {
    const large = Buffer.concat([pngOf(64), Buffer.alloc(1024 * 1024)])
    const image = await toFile(large, 'a.png', { type: 'image/png' })
    expect((await client.images.edit({ ...drawing512, image })).data).toHaveLength(1)
    agent.kill('SIGTERM')
    const [code] = await once(agent, 'exit')
    expect(code, written).toBe(0)
    expect((await client.images.generate(drawing512)).data).toHaveLength(1)
    expect(await servedBy(nodeId)).toBe(3)
  })
})
