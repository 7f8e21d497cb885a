import { useEffect, useRef, useState } from 'preact/hooks'

/*
 * A file that the reader drops on any page is checked by the page that checks evidence, in this
 * browser. A page that takes files gets it at once. Any other page keeps it in this browser's
 * database and opens /verify, which takes the file from there and deletes it. The file is sent
 * nowhere.
 */

type Take = (file: Blob) => void

/** The function of this page that takes a file; null when another page takes it. */
let taker: Take | null = null

/** The fragment that asks /verify to take the kept file. */
const KEPT_MARK = '#dropped'

/**
 * Takes the files that the reader drops anywhere on this page, and the file from the page before.
 */
export function useDroppedFiles(take: Take): void {
  const latest = useRef(take)
  latest.current = take
  useEffect(() => {
    const mine: Take = (file) => latest.current(file)
    taker = mine
    if (location.hash === KEPT_MARK) {
      history.replaceState(null, '', location.pathname)
      takeKeptFile().then(
        (file) => file !== null && mine(file),
        () => {
          // This browser lost it. The page behaves as if a link had opened it.
        },
      )
    }
    return () => {
      taker = null
    }
  }, [])
}

/**
 * Has files checked that the reader drops anywhere. `isOver`: a file is dragged over the page;
 * `isLost`: the last file could not be taken along. A part of the page that takes drops itself gets
 * its own drops.
 */
export function useFileDrops(): { readonly isOver: boolean; readonly isLost: boolean } {
  const [isOver, setIsOver] = useState(false)
  const [isLost, setIsLost] = useState(false)
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') === true
    const isOurs = (event: DragEvent) =>
      !event.defaultPrevented &&
      hasFiles(event) &&
      !(event.target instanceof Element && event.target.matches('input[type=file]'))
    const over = (event: DragEvent) => {
      if (isOurs(event)) event.preventDefault()
      setIsOver(hasFiles(event))
    }
    const leave = (event: DragEvent) => event.relatedTarget === null && setIsOver(false)
    const drop = (event: DragEvent) => {
      setIsOver(false)
      const [file] = event.dataTransfer?.files ?? []
      if (!isOurs(event) || file === undefined) return
      event.preventDefault()
      if (taker !== null) return taker(file)
      keepFile(file).then(
        () => location.assign(`/verify${KEPT_MARK}`),
        () => setIsLost(true),
      )
    }
    document.addEventListener('dragover', over)
    document.addEventListener('dragleave', leave)
    document.addEventListener('drop', drop)
    return () => {
      document.removeEventListener('dragover', over)
      document.removeEventListener('dragleave', leave)
      document.removeEventListener('drop', drop)
    }
  }, [])
  return { isOver, isLost }
}

const DATABASE = 'affidavit'
const STORE = 'dropped'
const KEY = 'file'

/** Keeps one file in place of any other. Rejects where this browser keeps nothing. */
async function keepFile(file: Blob): Promise<void> {
  await inStore((store) => store.put(file, KEY))
}

/** Gives the file that was kept, and deletes it; null without one. */
async function takeKeptFile(): Promise<Blob | null> {
  const value = await inStore((store) => {
    const reading = store.get(KEY)
    store.delete(KEY)
    return reading
  })
  return value instanceof Blob ? value : null
}

/** Gives the result of a request after all that `use` asked for is durable. */
async function inStore(use: (store: IDBObjectStore) => IDBRequest): Promise<unknown> {
  const database = await new Promise<IDBDatabase>((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1)
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE)
    opening.onsuccess = () => resolve(opening.result)
    opening.onerror = () => reject(opening.error)
  })
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, 'readwrite')
      const request = use(transaction.objectStore(STORE))
      transaction.oncomplete = () => resolve(request.result)
      transaction.onabort = () => reject(transaction.error)
    })
  } finally {
    database.close()
  }
}
