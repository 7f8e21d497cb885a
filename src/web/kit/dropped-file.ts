import { useEffect, useRef, useState } from 'preact/hooks'

/*
 * The reader can drop a file on any page, and the page /verify checks it in this browser. A page
 * that takes files itself gets the file at once. Any other page stores the file in this browser's
 * database and opens /verify, which reads and deletes the stored file. The file is never sent.
 */

type Take = (file: Blob) => void

/** Null when this page does not take files. */
let taker: Take | null = null

/** This fragment makes /verify take the stored file. */
const KEPT_MARK = '#dropped'

/** Calls `take` with each file that is dropped on this page or was stored by another page. */
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
          // The browser lost the stored file, so the page opens without a file.
        },
      )
    }
    return () => {
      taker = null
    }
  }, [])
}

/**
 * `isOver`: the reader drags a file over the page. `isLost`: the last file could not be stored for
 * the next page. If a part of the page handles drops itself, that part gets the files that are
 * dropped on it.
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

/** Replaces any stored file. Rejects when this browser stores nothing. */
async function keepFile(file: Blob): Promise<void> {
  await inStore((store) => store.put(file, KEY))
}

/** Deletes the stored file. Null without a stored file. */
async function takeKeptFile(): Promise<Blob | null> {
  const value = await inStore((store) => {
    const reading = store.get(KEY)
    store.delete(KEY)
    return reading
  })
  return value instanceof Blob ? value : null
}

/** Waits until the changes of `use` are durable, and returns the result of the request. */
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
