/** A verification of one P-384 signature over as many bytes. */
export async function bareVerification(length: number): Promise<() => Promise<void>> {
  const { subtle } = globalThis.crypto
  const pair = await subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, [
    'sign',
    'verify',
  ])
  const algorithm = { name: 'ECDSA', hash: 'SHA-384' }
  const data = new Uint8Array(length)
  const signature = await subtle.sign(algorithm, pair.privateKey, data)
  return async () => {
    if (!(await subtle.verify(algorithm, pair.publicKey, signature, data)))
      throw new Error('expected it to hold')
  }
}
