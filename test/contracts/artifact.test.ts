import { readFileSync } from 'node:fs'
import { getCreate2Address, keccak256 } from 'ethers'
import { expect, it } from 'vitest'
import { AFFIDAVIT, DEPLOYMENT } from '#attestation/contract/artifact.ts'
import { ARTIFACT_FILE, compileArtifact } from '#contracts/compile.ts'
import { startTestChain } from '../support/chain.ts'

it('the committed artifact is what the compiler makes of the source, byte for byte', () => {
  expect(readFileSync(ARTIFACT_FILE, 'utf8')).toBe(compileArtifact())
})

it('the committed artifact names the address that ethers finds for its deployment', () => {
  const address = getCreate2Address(
    DEPLOYMENT.proxy,
    DEPLOYMENT.data.slice(0, 66),
    keccak256(AFFIDAVIT.bytecode),
  )
  expect(DEPLOYMENT.address).toBe(address.toLowerCase())
})

it('the committed artifact says which bytecode stands on a chain after its deployment', async () => {
  const chain = await startTestChain()
  try {
    const code = await chain.rpc.call('eth_getCode', [chain.contract, 'latest'])
    expect(code).toBe(AFFIDAVIT.deployedBytecode)
  } finally {
    await chain.dispose()
  }
})

it('the committed artifact has no way in but the functions of the design, and takes no value', () => {
  const abi = AFFIDAVIT.abi as readonly {
    readonly type: string
    readonly name: string
    readonly stateMutability?: string
  }[]
  const functions = abi.filter((entry) => entry.type !== 'event' && entry.type !== 'error')
  expect(functions.map((entry) => `${entry.name} ${entry.stateMutability}`).sort()).toEqual([
    'anchor nonpayable',
    'newestHead view',
    'treeHeadDigest view',
    'verifyAnchored view',
    'verifyInclusion pure',
  ])
})
