import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { NodeAccess } from '#src/agent/config.ts'
import { createGatewayClient, type GatewayClient } from '#src/agent/gateway-client.ts'
import { findOwnNode, openOwnNode } from '#src/cli/node/own-node.ts'
import { createLogger } from '#src/observability/logger.ts'
import { folderOfTest } from '../../../support/folders.ts'
import {
  NODE_ID,
  NODE_KEY,
  type ScriptedNodeGateway,
  startScriptedNodeGateway,
} from '../../../support/scripted-node-gateway.ts'

let folder = ''
let gateway: ScriptedNodeGateway
let client: GatewayClient
let access: NodeAccess
let lines: string[] = []
const log = createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } })

beforeEach(async () => {
  folder = folderOfTest()
  lines = []
  gateway = await startScriptedNodeGateway()
  client = createGatewayClient({ url: gateway.url, apiKey: NODE_KEY })
  access = {
    gatewayUrl: gateway.url,
    apiKey: NODE_KEY,
    nodeId: null,
    nodeName: 'gpu-1',
    nodesFile: join(folder, 'state/nodes.json'),
  }
})
afterEach(() => gateway.stop())

const open = (more: Partial<NodeAccess> = {}) =>
  openOwnNode({ ...access, ...more }, { gateway: client, log })
const made = () => gateway.calls.filter(({ method }) => method === 'POST')
const listed = (more: object = {}, id = NODE_ID) => ({ node_id: id, name_alias: 'gpu-1', ...more })

/** Writes what the file keeps. */
async function keep(text: string): Promise<void> {
  await mkdir(join(folder, 'state'), { recursive: true })
  await writeFile(access.nodesFile, text)
}

const keepId = (id: string) =>
  keep(
    JSON.stringify({
      format: 'affidavit-nodes',
      version: 1,
      nodes: [{ gateway: gateway.url, name: 'gpu-1', node_id: id }],
    }),
  )

describe('openOwnNode', () => {
  it('the first start makes a node of the name, and the second start takes the same node', async () => {
    expect(await open()).toBe(NODE_ID)
    expect(await open()).toBe(NODE_ID)
    expect(made().map(({ body }) => body)).toEqual([{ node_name: 'gpu-1' }])
    expect(lines.join('')).toContain('"node created"')
  })

  it('a start finds the node by its name when the file was lost', async () => {
    await open()
    await rm(access.nodesFile)
    expect(await open()).toBe(NODE_ID)
    expect(made()).toHaveLength(1)
    expect(await readFile(access.nodesFile, 'utf8')).toContain(NODE_ID)
  })

  it('starts at once make one node together', async () => {
    const opened = await Promise.all([open(), open(), open()])
    expect(new Set(opened)).toEqual(new Set([NODE_ID]))
    expect(made()).toHaveLength(1)
  })

  it.each([
    ['is no JSON', () => keep('{'), 'is not a file of nodes'],
    ['has another form', () => keep('{"nodes":1}'), 'is not a file of nodes'],
    ['cannot be read', () => mkdir(access.nodesFile, { recursive: true }), 'EISDIR'],
    ['is in a place that is no folder', () => writeFile(join(folder, 'state'), ''), 'ENOTDIR'],
  ])(
    'a start refuses a file of nodes that %s, by the name of the file',
    async (_, write, words) => {
      await write()
      await expect(open()).rejects.toThrow(words)
      await expect(open()).rejects.toThrow(access.nodesFile)
      expect(made()).toEqual([])
    },
  )

  it('a start makes another node when the account no longer has the kept node', async () => {
    await keepId('gone_gone_gone_gone_gone')
    expect(await open()).toBe(NODE_ID)
    expect(lines.join('')).toContain('the kept node is gone')
    expect(await readFile(access.nodesFile, 'utf8')).not.toContain('gone_gone')
  })

  it.each([
    ['two nodes of the name', [listed(), listed({}, 'other')], `${NODE_ID}, other`],
    ['a node of the name that is connected', [listed({ is_connected: true })], 'connected already'],
  ])('a start without a file refuses %s', async (_, nodes, words) => {
    gateway.known.listed.push(...nodes)
    await expect(open()).rejects.toThrow(words)
    expect(made()).toEqual([])
  })
})

describe('findOwnNode', () => {
  it('a question about the node finds it in the file or by its name, and makes none', async () => {
    const find = () => findOwnNode(access, client)
    await expect(find()).rejects.toThrow('no node called gpu-1')
    gateway.known.listed.push(listed({ is_connected: true }))
    expect(await find()).toBe(NODE_ID)
    await keepId('kept')
    expect(await find()).toBe('kept')
    expect(await findOwnNode({ ...access, nodeId: 'named' }, client)).toBe('named')
    expect(made()).toEqual([])
  })
})
