import type { Readable } from 'node:stream'
import type { ImageType } from './image-facts.ts'

/** An image that is kept. */
export type KeptImage = {
  readonly type: ImageType
  /** Bytes in it. */
  readonly length: number
  /** Unix milliseconds. */
  readonly expiresAtMs: number
  /** Its bytes, a piece at a time: who reads slowly shall not hold it in memory. Null when it is gone by now. Read it or destroy it. */
  open(): Promise<Readable | null>
}

/** Where images are kept for a while. */
export type ImageStore = {
  /** Keeps an image and gives the id of a new link to it. Throws StoreFullError. */
  put(image: { readonly bytes: Uint8Array; readonly type: ImageType }): Promise<string>
  /** The image behind a link; null when there is none, or no longer. `id` is a caller's: whatever it is. */
  find(id: string): Promise<KeptImage | null>
}

/** There is no room for another image. */
export class StoreFullError extends Error {
  override readonly name = 'StoreFullError'

  constructor() {
    super('the image store is full')
  }
}
