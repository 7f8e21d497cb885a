import { describe, expect, it } from 'vitest'
import { DEPLOYMENT } from '../../contracts/deployment.ts'
import { LOCAL_CONTRACT } from '../../src/local/contract-deployment.ts'

describe('the address of the contract', () => {
  it('is the same on the local chain as anywhere else', () => {
    expect(DEPLOYMENT.address).toBe(LOCAL_CONTRACT)
  })
})
