import './console.css'
import { showPage } from '../kit/frame.tsx'
import { ConsolePage } from './console-page.tsx'

showPage(<ConsolePage />)
